"""Recognition of a file's schema from its column names and first values, and the proposed mapping.

This is plain Python: the child proposes a mapping with it, and pages show the proposal. The first matching schema wins.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from controlplane.catalogue.datasets.reader.columns.conversations import are_messages
from controlplane.catalogue.datasets.reader.columns.fields import parse_list
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, resolved
from controlplane.catalogue.datasets.reader.columns.templating import PROMPT
from controlplane.catalogue.datasets.reader.columns.transforms import (
    ENTRY_POINT,
    GSM8K,
    GSM8K_MARKER,
    HUMANEVAL,
    INSTRUCTION,
    THINK,
    THINK_PROMPT,
    TRANSFORMS,
    WITH_TESTS,
)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Recognised:
    """Proposed mapping, with the reasons for it."""

    schema: str
    """Slug of the schema: one of SCHEMAS, `messages`, `by_words`, `text` or `unknown`, or a refinement's."""
    title: str
    why: str
    mapping: ColumnMapping

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "mapping": self.mapping.as_dict()}


@dataclass(frozen=True)
class KnownSchema:
    """Candidate columns by role, of which the first one in the file is used. `input` is optional."""

    title: str
    prompt: tuple[str, ...]
    answer: tuple[str, ...]
    input: tuple[str, ...] = ()


MESSAGES = ("messages", "conversations", "conversation", "chat", "dialogue", "turns", "prompt")
SCHEMAS: Mapping[str, KnownSchema] = {
    "prompt_answer": KnownSchema(
        "Prompt and answer", ("prompt",), ("answer", "final_answer", "solution", "ground_truth"), ("input",)
    ),
    "problem_solution": KnownSchema("Problem and solution", ("problem",), ("answer", "final_answer", "solution")),
    "question_answer": KnownSchema(
        "Question and answer", ("question", "query"), ("final_answer", "answer", "solution", "response")
    ),
    "instruction_response": KnownSchema("Instruction and response", ("instruction",), ("response",), ("input",)),
    # In files with these columns, a prompt column is often the whole text of an Alpaca row, including the answer.
    "instruction_output": KnownSchema("Instruction, input and output", ("instruction",), ("output",), ("input",)),
    "instruction_answer": KnownSchema("Instruction and answer", ("instruction",), ("answer", "solution"), ("input",)),
    "prompt_response": KnownSchema(
        "Prompt and response", ("prompt",), ("response", "completion", "output", "target", "expected"), ("input",)
    ),
    "input_output": KnownSchema(
        "Input and output", ("input",), ("output", "answer", "response", "target", "label", "expected")
    ),
}
"""Known schemas. Those with questions come before those with instructions, which many rows may share."""
INSTRUCTION_COLUMN = "instruction"
MIN_FILLED_SHARES = (0.9, 0.5, 0.0)
"""Minimum shares of rows with a value, tried in turn, so that columns that nearly all rows fill take precedence."""
TESTS = ("test_cases", "tests", "test_list", "unit_tests")
DIFFICULTY = ("difficulty", "level", "difficulty_level", "hardness")
TAGS = ("tags", "topics", "categories", "labels", "concepts")
PROMPT_WORDS = (
    *("prompt", "question", "problem", "instruction", "input", "query", "text", "task", "exercise", "puzzle"),
    "content",
)
ANSWER_WORDS = (
    *("answer", "solution", "response", "completion", "output", "target", "expected", "truth", "gold", "label"),
    *("result", "reply"),
)
"""Words in a column's name that suggest what it contains, most reliable first."""
DESCRIPTIVE_WORDS = frozenset(
    (
        *("id", "ids", "uuid", "guid", "index", "idx", "key", "hash", "no", "nr", "num", "number", "count", "length"),
        *("len", "tokens", "type", "kind", "format", "category", "level", "difficulty", "score", "rating", "source"),
        *("url", "link", "date", "time", "timestamp", "language", "lang", "model", "split", "version", "author"),
    )
)
"""Words in names of columns that describe a text instead of containing it."""
CHOOSE_ANSWER = "Choose the answer column, or “no answers”."
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_IDENTIFIER = re.compile(r"\d+|[a-zA-Z_][\w.:/#-]{0,40}\d[\w.:/#-]{0,40}|[0-9a-fA-F-]{16,40}")
WHOLE_FUNCTION = "Complete the function. Answer with the whole function, in one block of Python."
FOLLOW_UPS = (("follow_up", "follow_up_response"), ("followup", "followup_response"))


def recognise(preview_rows: Rows, columns: Sequence[Mapping[str, Any]]) -> Recognised:
    """Return the mapping proposed for a file with these first rows, which may be shortened, and these columns, which
    have a "name" and may have the "share" of rows with a value."""
    names: dict[str, str] = {}
    for column in columns:
        names.setdefault("_".join(_name_words(str(column["name"]))), str(column["name"]))
    share = {str(column["name"]): column.get("share", 1) for column in columns}
    filled = [{low: name for low, name in names.items() if share[name] >= least} for least in MIN_FILLED_SHARES]
    exact = (_messages(preview_rows, columns) or _pair(columns, names) for columns in filled)
    similar = (_by_words(preview_rows, columns) for columns in filled)
    guess = next((match for matches in (exact, similar) for match in matches if match), None)
    guess = guess or _longest_text(preview_rows, names)
    for refine in _REFINEMENTS:
        guess = refine(guess, preview_rows, names)
    return guess


def _messages(rows: Rows, names: Mapping[str, str]) -> Recognised | None:
    column = next((names[n] for n in MESSAGES if n in names and _all(rows, names[n], are_messages)), None)
    if column is None:
        return None
    answer = _first(("answer", "final_answer", "ground_truth", "solution"), names)
    source = f"“{answer}” contains the answer" if answer else "the assistant's last turn becomes the answer"
    why = f"“{column}” contains chat messages in all of the first rows; {source}."
    return Recognised("messages", "Chat messages", why, ColumnMapping(prompt=column, messages=True, answer=answer))


def _pair(filled: Mapping[str, str], names: Mapping[str, str]) -> Recognised | None:
    for slug, schema in SCHEMAS.items():
        prompt, answer = _first(schema.prompt, filled), _first(schema.answer, filled)
        if not (prompt and answer):
            continue
        input_column = _first(schema.input, names)
        why = f"The file has the columns “{prompt}” and “{answer}”."
        if input_column:
            why += f" “{input_column}” is appended to the prompt in rows that have it."
        mapping = ColumnMapping(prompt=prompt, answer=answer, input=input_column)
        if slug == "instruction_response":
            mapping = replace(mapping, transform=INSTRUCTION)
        return Recognised(slug, schema.title, why, mapping)
    return None


def _by_words(rows: Rows, filled: Mapping[str, str]) -> Recognised | None:
    """Propose the columns whose names contain words for prompts and answers, such as “Question Text”."""
    texts = {key: name for key, name in filled.items() if _may_be_prompt(rows, name)}
    prompt = _with_word(PROMPT_WORDS, texts, excluded=ANSWER_WORDS)
    if not prompt:
        return None
    answer = _with_word(ANSWER_WORDS, {key: name for key, name in filled.items() if name != prompt})
    if answer:
        why = f"The column names “{prompt}” and “{answer}” suggest a prompt and its answer."
        return Recognised("by_words", "Prompt and answer", why, ColumnMapping(prompt=prompt, answer=answer))
    why = f"The column name “{prompt}” suggests a prompt, and no column name suggests an answer. {CHOOSE_ANSWER}"
    return Recognised("text", "Prompts alone", why, ColumnMapping(prompt=prompt))


def _longest_text(rows: Rows, names: Mapping[str, str]) -> Recognised:
    texts = [name for name in names.values() if _may_be_prompt(rows, name)]
    prompt = max(texts, key=lambda name: sum(len(row.get(name) or "") for row in rows), default="")
    why = "No column name was recognized"
    why += f"; “{prompt}” has the longest texts. {CHOOSE_ANSWER}" if prompt else ", and no column looks like a prompt."
    return Recognised("unknown", "Not recognized", why, ColumnMapping(prompt=prompt))


def _may_be_prompt(rows: Rows, name: str) -> bool:
    """Return whether a column has texts other than row numbers and identifiers."""
    return not DESCRIPTIVE_WORDS.intersection(_name_words(name)) and _all(
        rows, name, lambda value: isinstance(value, str) and not _IDENTIFIER.fullmatch(value.strip())
    )


def _with_word(candidates: Sequence[str], names: Mapping[str, str], excluded: Sequence[str] = ()) -> str:
    """Return the first column whose name contains the earliest of these words, singular or plural; "" if none does."""
    for word in candidates:
        for name in names.values():
            inside = {*_name_words(name)} | {part.removesuffix("s") for part in _name_words(name)}
            if word in inside and not inside & (DESCRIPTIVE_WORDS | {*excluded}):
                return name
    return ""


def _name_words(name: str) -> list[str]:
    """Split a name into lower-case words, the same for “Question Text”, question-text and questionText."""
    return [word.lower() for word in _WORD.findall(name)]


def _instruction_above(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    """Put an instruction column above the question, since it says how to answer."""
    column, mapping = names.get(INSTRUCTION_COLUMN, ""), guess.mapping
    if mapping.messages or not mapping.answer or column in (mapping.prompt, mapping.answer):
        return guess
    if not column or column != column.strip():  # placeholders have no spaces at their ends
        return guess
    if not all(_complements(row.get(column), row.get(mapping.prompt)) for row in rows):
        return guess
    why = f"{guess.why} The template puts “{column}” above the prompt."
    return replace(guess, why=why, mapping=replace(mapping, template=f"{{{column}}}\n\n{{{PROMPT}}}"))


def _complements(instruction: Any, prompt: Any) -> bool:
    text = instruction.strip() if isinstance(instruction, str) else ""
    return bool(text) and not (isinstance(prompt, str) and text in prompt)


def _final_answer_after_a_marker(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    answer = guess.mapping.answer
    if not answer or not _all(rows, answer, lambda value: isinstance(value, str) and GSM8K_MARKER in value):
        return guess
    why = f"{guess.why} In the first rows, the final answer follows {GSM8K_MARKER}, as in GSM8K."
    mapping = replace(guess.mapping, transform=GSM8K, answer_after=GSM8K_MARKER)
    return Recognised("gsm8k", "GSM8K: question and answer", why, mapping)


def _reasoning(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    def has_reasoning(value: Any) -> bool:
        if isinstance(value, list) and value and isinstance(value[-1], dict):
            value = value[-1].get("content", value[-1].get("value"))
        return isinstance(value, str) and "<think>" in value and "</think>" in value

    column = guess.mapping.answer or (guess.mapping.prompt if guess.mapping.messages else "")
    if not column or not _all(rows, column, has_reasoning):
        return guess
    why = f"{guess.why} The first responses reason in <think>…</think>, and the answers are extracted from them."
    system = guess.mapping.system_prompt or THINK_PROMPT
    mapping = replace(guess.mapping, transform=THINK, system_prompt=system)
    return Recognised("think", "Reasoning in think tags", why, mapping)


def _follow_up_turn(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    pair = next(((names[a], names.get(b, "")) for a, b in FOLLOW_UPS if a in names), None)
    if pair is None or guess.mapping.messages or not guess.mapping.answer:
        return guess
    why = f"{guess.why} In rows that have “{pair[0]}”, it continues the prompt after the first answer."
    mapping = replace(guess.mapping, follow_up=pair[0], follow_up_response=pair[1])
    return replace(guess, schema="multi_turn", title=f"{guess.title}, with a follow-up", why=why, mapping=mapping)


def _code_with_tests(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    column = next((names[n] for n in TESTS if n in names and any(_is_tests(row.get(names[n])) for row in rows)), "")
    if not column:
        return guess
    why = f"{guess.why} “{column}” contains tests for each row's code."
    has_all_tests = guess.mapping.transform == INSTRUCTION and _all(rows, column, _is_tests)
    transform = WITH_TESTS if has_all_tests else guess.mapping.transform
    mapping = replace(guess.mapping, test_cases=column, transform=transform)
    return replace(guess, schema="code_with_tests", title=f"{guess.title}, with tests", why=why, mapping=mapping)


def _human_eval(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    if not {ENTRY_POINT, *TRANSFORMS[HUMANEVAL].columns.values()} <= set(names.values()):
        return guess
    why = (
        "The file has HumanEval's columns “prompt”, “canonical_solution”, “test” and “entry_point”. Each row's answer "
        "is the whole function, and its test calls `check` with that function."
    )
    mapping = resolved(ColumnMapping(transform=HUMANEVAL, system_prompt=WHOLE_FUNCTION))
    return Recognised("humaneval", "HumanEval: functions with tests", why, mapping)


def _difficulty_and_tags(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    used = set(guess.mapping.as_dict().values())
    unused = {key: name for key, name in names.items() if name not in used}
    difficulty, tags = _first(DIFFICULTY, unused), _first(TAGS, unused)
    extras = [f"“{column}” as {role}" for column, role in ((difficulty, "difficulty"), (tags, "tags")) if column]
    if not extras:
        return guess
    why = f"{guess.why} It uses {' and '.join(extras)}."
    return replace(guess, why=why, mapping=replace(guess.mapping, difficulty=difficulty, tags=tags))


_REFINEMENTS: tuple[Callable[[Recognised, Rows, Mapping[str, str]], Recognised], ...] = (
    _instruction_above,
    _final_answer_after_a_marker,
    _reasoning,
    _follow_up_turn,
    _code_with_tests,
    _human_eval,
    _difficulty_and_tags,
)


def _is_tests(value: Any) -> bool:
    value = parse_list(value) if isinstance(value, str) else value
    return isinstance(value, list) and bool(value) and all(isinstance(case, str) for case in value)


def _first(candidates: Sequence[str], names: Mapping[str, str]) -> str:
    return next((names[name] for name in candidates if name in names), "")


def _all(rows: Rows, column: str, fits: Callable[[Any], bool]) -> bool:
    """Return whether there are non-empty values and all of them match."""
    values = [value for row in rows if (value := row.get(column)) not in (None, "")]
    return bool(values) and all(map(fits, values))
