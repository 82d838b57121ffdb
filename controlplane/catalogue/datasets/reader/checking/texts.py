"""Check of a row's texts for damage that is valid JSON, a chat template's tokens, and answers that the prompt gives."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.conversations import CHAT_TOKENS, begins_answer, last_text
from controlplane.catalogue.datasets.reader.columns.fields import parse_list
from controlplane.catalogue.datasets.reader.columns.mapping import IMAGE_MARKS, LAST_TURN, ColumnMapping, prompt_text
from controlplane.catalogue.datasets.reader.columns.paths import TEXTS_OF_MESSAGES, value_of
from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT, visible
from controlplane.catalogue.datasets.reader.problems import DataProblem

_LATEX = re.compile(
    "\x08(?:eta|oxed|egin|ar|inom|f|mathbf|mod|ig|ullet|ecause|ot|old|ackslash|reve|mid)"
    "|\x0c(?:rac|orall|box{|lushleft|rown|ootnote{)"
    "|\t(?:imes|heta|ext{|riangle|frac|ilde{|herefore)"
    "|\n(?:abla|eq(?![a-z])|otin|leq|geq)"
    "|\r(?:ight(?![a-z])|floor|ceil)"
)
"""Pattern of a control character and the rest of a LaTeX command, unless the rest is a word, such as “to” or “nu”."""
_PICTURE = re.compile(r"!\[[^\]\n]{0,200}\]\([^)\s]{1,500}\)")
_CONTROL = re.compile("[\x01-\x08\x0b\x0c\x0e-\x1f]")
_NAMES = {"\x08": "\\b", "\x0c": "\\f", "\t": "\\t", "\n": "\\n", "\r": "\\r"}
_ANSWER_LEAD_IN = re.compile(r"(?:answer|solution|result|output|####|boxed\{)\W{0,10}$", re.IGNORECASE)
_END = " \t\n.!)}]$*"


def problems(
    row: Mapping[str, Any], source_row: Mapping[str, Any], mapping: ColumnMapping, line: int
) -> Iterator[DataProblem]:
    """Yield the problems of a row from mapping.canonical, made of `source_row`, whose texts still have the control
    characters at their ends."""
    prompt, answer = prompt_text(row["prompt"]), row["answer"] or ""
    yield from _damaged(prompt, row, source_row, mapping, line)
    may_have_tokens = mapping.chat and ("<" in prompt or "[" in prompt)
    if may_have_tokens and (match := CHAT_TOKENS.search(prompt)):
        message = f"“{mapping.prompt}” contains “{match[0]}”, and the model's chat template is put around it."
        yield _problem(line, "chat_tokens", message, prompt, match.start(), mapping.prompt)
    stem = prompt.rstrip(_END)
    if (
        answer
        and stem.endswith(answer.rstrip(_END))
        and _ANSWER_LEAD_IN.search(stem[: len(stem) - len(answer.rstrip(_END))])
    ):
        yield _problem(line, "answer_in_prompt", "The prompt ends with its answer.", prompt, len(stem), mapping.prompt)
    if "![" in prompt and (picture := _PICTURE.search(prompt)):
        message = f"The prompt links to an image, “{picture[0][:60]}”, which stays as text."
        yield _problem(line, "image_marks", message, prompt, picture.start(), mapping.prompt)
    elif "<" in prompt and (mark := next((mark for mark in IMAGE_MARKS if mark in prompt), "")):
        message = f"The prompt has the place of an image, a video or a sound, “{mark}”, which stays as text."
        yield _problem(line, "image_marks", message, prompt, prompt.index(mark), mapping.prompt)
    last_turn = row["metadata"].get(LAST_TURN, "")
    if last_turn and answer and answer not in last_turn:
        message = "The prompt ends with a message of the assistant, which is left out."
        yield _problem(line, "last_turn", message, last_turn, 0, mapping.prompt)
    elif mapping.messages and not mapping.answer and "<" in answer and begins_answer([answer]):
        message = "The last message of the assistant only begins an answer, and became the row's answer."
        yield _problem(line, "last_turn", message, answer, 0, mapping.prompt)


def left_out(source_row: Mapping[str, Any], mapping: ColumnMapping, line: int) -> Iterator[DataProblem]:
    """Yield a problem for what a row's messages have besides texts and tools and no prompt can show."""
    value = value_of(source_row, mapping.prompt) if mapping.messages else None
    turns = parse_list(value) if isinstance(value, str) else value
    for number, message in enumerate(turns if isinstance(turns, list) else (), 1):
        used = mapping.answer.removeprefix(f"{mapping.prompt}.-1.").partition(".")[0]
        names = [name for name, part in message.items() if part and name not in TEXTS_OF_MESSAGES and name != used]
        if names:
            text = f"Message {number} in “{mapping.prompt}” has “{names[0]}”, which isn't part of the prompt."
            yield DataProblem(line, "left_out_parts", visible(text), field=visible(mapping.prompt))
            return


def _damaged(
    prompt: str, row: Mapping[str, Any], source_row: Mapping[str, Any], mapping: ColumnMapping, line: int
) -> Iterator[DataProblem]:
    """Yield the control characters in a row's texts."""
    system = [(mapping.system, turn["content"]) for turn in row["prompt"] if turn["role"] == "system"]
    names = [name for name in (mapping.answer, mapping.follow_up_response, mapping.choices) if name]
    given = [(name, text) for name in names for text in _texts(value_of(source_row, name))]
    turns = value_of(source_row, mapping.prompt) if mapping.messages and not mapping.answer else None
    for field, text in (
        (mapping.prompt, prompt),
        *system,
        *given,
        (mapping.prompt, last_text(turns)),
    ):
        if text.isprintable():  # much faster than a search
            continue
        if match := _LATEX.search(text):
            tail = text[match.start() + 1 : match.end()]
            message = f"“{field}” has a control character before “{tail}”: it was “{_NAMES[match[0][0]]}{tail}”."
            yield _problem(line, "latex_escapes", message, text, match.start(), field)
        elif match := _CONTROL.search(text):
            message = f"“{field}” contains the control character U+{ord(match[0]):04X}."
            yield _problem(line, "control_characters", message, text, match.start(), field)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _problem(line: int, kind: str, message: str, text: str, index: int, field: str) -> DataProblem:
    start = max(0, index - MAX_EXCERPT // 2)
    return DataProblem(line, kind, visible(message), visible(text[start : start + MAX_EXCERPT]), field=visible(field))
