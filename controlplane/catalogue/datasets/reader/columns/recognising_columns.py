"""Recognition of a file's schema from its column names and first values, and the proposed mapping.

This is plain Python: the child proposes a mapping with it, and pages show the proposal. The first matching schema wins.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from controlplane.catalogue.datasets.reader.columns.code_tests import is_tests
from controlplane.catalogue.datasets.reader.columns.column_names import (
    ANSWER_WORDS,
    BESIDE_QUESTIONS,
    CHOICE_ANSWERS,
    CONTEXTS,
    DESCRIPTIVE_WORDS,
    DIFFICULTY,
    FOLLOW_UPS,
    INSTRUCTION_COLUMN,
    MESSAGE_ANSWERS,
    MESSAGES,
    NOT_ROLES,
    NOT_TRUTH,
    NUMBERS,
    PROMPT_WORDS,
    SYSTEM,
    TAGS,
    TESTS,
    TRUTHS,
)
from controlplane.catalogue.datasets.reader.columns.conversations import (
    CHAT_TOKENS,
    TEMPLATE_END,
    are_messages,
    begins_answer,
    ends_with_answer,
    last_text,
    uses_tools,
)
from controlplane.catalogue.datasets.reader.columns.fields import answer_texts, is_ordered
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, resolved
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from controlplane.catalogue.datasets.reader.columns.proposing import (
    Recognised,
    Rows,
    all_match,
    first,
    holds,
    length,
    name_words,
    with_word,
)
from controlplane.catalogue.datasets.reader.columns.recognising_choices import with_choices
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


@dataclass(frozen=True)
class KnownSchema:
    """Candidate columns by role, of which the first one in the file is used. `input` is optional."""

    title: str
    prompt: tuple[str, ...]
    answer: tuple[str, ...]
    input: tuple[str, ...] = ()


SCHEMAS: Mapping[str, KnownSchema] = {
    "prompt_answer": KnownSchema(
        "Prompt and answer", ("prompt",), ("answer", "final_answer", "solution", "ground_truth"), ("input",)
    ),
    "problem_solution": KnownSchema(
        "Problem and solution", ("problem",), ("answer", "final_answer", "solution", "ground_truth")
    ),
    "question_answer": KnownSchema(
        "Question and answer",
        ("question", "query"),
        ("final_answer", "answer", "answers", "golden_answers", "solution", "response", "answer_key", "ground_truth"),
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
MIN_FILLED_SHARES = (0.9, 0.5, 0.0)
"""Minimum shares of rows with a value, tried in turn, so that columns that nearly all rows fill take precedence."""
CHOOSE_ANSWER = "Choose the answer column, or “no answers”."
_IDENTIFIER = re.compile(r"\d+|[a-zA-Z_][\w.:/#-]{0,40}\d[\w.:/#-]{0,40}|[0-9a-fA-F-]{16,40}")
TEMPLATES = (CHAT_TOKENS, TEMPLATE_END)
WHOLE_FUNCTION = "Complete the function. Answer with the whole function, in one block of Python."


def recognise(preview_rows: Rows, columns: Sequence[Mapping[str, Any]]) -> Recognised:
    """Return the mapping proposed for a file with these first rows, which may be shortened, and these columns, which
    have a "name" and may have the "share" of rows with a value."""
    names = _names([str(column["name"]) for column in columns])
    shares = {str(column["name"]): column.get("share", 1) for column in columns}
    by_share = [
        {key: name for key, name in names.items() if shares[name] >= least and shares[name]}
        for least in MIN_FILLED_SHARES
    ]
    by_known_names = (_messages(preview_rows, columns) or _pair(preview_rows, columns, names) for columns in by_share)
    by_words = (_by_words(preview_rows, columns) for columns in by_share)
    proposal = next((match for matches in (by_known_names, by_words) for match in matches if match), None)
    proposal = proposal or _numbers(names) or _longest_text(preview_rows, names)
    for refine in _REFINEMENTS:
        proposal = refine(proposal, preview_rows, names)
    return proposal


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Map words to columns: each column by its name, each value inside a column also by its last name, and the value
    that rewards compare with by "answer"."""
    inner = [column for column in columns if "." in column and not NOT_ROLES.search(column.lower())]
    names: dict[str, str] = {}
    for column in columns:
        if "." not in column or column in inner:
            names.setdefault("_".join(name_words(column)), column)
    for column in sorted(inner, key=lambda column: not any(truth in column for truth in TRUTHS)):
        if any(truth in column for truth in TRUTHS) and not NOT_TRUTH.search(column):
            names.setdefault("answer", column)
        names.setdefault("_".join(name_words(column.rpartition(".")[2])), column)
    return names


def _messages(rows: Rows, names: Mapping[str, str]) -> Recognised | None:
    candidates = [names[name] for name in MESSAGES if name in names] + list(names.values())
    column = next((name for name in candidates if all_match(rows, name, are_messages)), None)
    if column is None:
        return None
    values = [value for row in rows if (value := value_of(row, column))]
    has_answers = all(map(ends_with_answer, values))
    is_begun = has_answers and begins_answer([last_text(value) for value in values])
    answers = {key: name for key, name in names.items() if _are_answers(rows, name)}
    in_turns = has_answers and not is_begun
    answer = first(MESSAGE_ANSWERS if in_turns else MESSAGE_ANSWERS + BESIDE_QUESTIONS, answers)
    slug, source = "messages", "the assistant's last turn becomes the answer"
    if answer:
        source = f"“{answer}” contains the answer"
        source += ". The assistant's last turn isn't part of the prompt; it is kept in the metadata" * has_answers
    elif not has_answers:
        slug, source = "messages_alone", f"none ends with an answer, and no column contains one. {CHOOSE_ANSWER[:-1]}"
    source += ". Tool calls and results after the last question are left out" * any(map(uses_tools, values))
    why = f"“{column}” contains chat messages in all of the first rows; {source}."
    return Recognised(slug, "Chat messages", why, ColumnMapping(prompt=column, messages=True, answer=answer))


def _pair(rows: Rows, filled: Mapping[str, str], names: Mapping[str, str]) -> Recognised | None:
    texts = {key: name for key, name in filled.items() if holds(rows, name, lambda value: isinstance(value, str))}
    answers = {key: name for key, name in filled.items() if _are_answers(rows, name)}
    for slug, schema in SCHEMAS.items():
        prompt, answer = first(schema.prompt, texts), first(schema.answer, answers)
        if not (prompt and answer) or prompt == answer:
            continue
        input_column = first(schema.input, names)
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
    filled = {key: name for key, name in filled.items() if "." not in name}
    text_columns = {key: name for key, name in filled.items() if _may_be_prompt(rows, name)}
    prompt = with_word(PROMPT_WORDS, text_columns, excluded=ANSWER_WORDS, rows=rows)
    if not prompt:
        return None
    others = {key: name for key, name in filled.items() if name != prompt and _are_answers(rows, name)}
    answer = first(("answer_key",), others) or with_word(ANSWER_WORDS, others)
    if answer:
        why = f"The column names “{prompt}” and “{answer}” suggest a prompt and its answer."
        return Recognised("by_words", "Prompt and answer", why, ColumnMapping(prompt=prompt, answer=answer))
    why = f"The column name “{prompt}” suggests a prompt, and no column name suggests an answer. {CHOOSE_ANSWER}"
    return Recognised("text", "Prompts alone", why, ColumnMapping(prompt=prompt))


def _numbers(names: Mapping[str, str]) -> Recognised | None:
    """Propose a template for tasks that are made of numbers and a target, such as Countdown."""
    numbers, target = first(NUMBERS, names), names.get("target", "")
    if not (numbers and target):
        return None
    template = (
        f"Write an equation with the numbers {{{numbers}}} that equals {{{target}}}. Use each number exactly once, and "
        "only +, -, * and /."
    )
    why = f"The template makes a prompt of “{numbers}” and the target “{target}”, as in Countdown."
    return Recognised("numbers", "Numbers and a target", why, ColumnMapping(answer=target, template=template))


def _longest_text(rows: Rows, names: Mapping[str, str]) -> Recognised:
    text_columns = [name for name in names.values() if _may_be_prompt(rows, name)]
    prompt = max(text_columns, key=lambda name: length(rows, name), default="")
    why = "No column name was recognized"
    why += f"; “{prompt}” has the longest texts. {CHOOSE_ANSWER}" if prompt else ", and no column looks like a prompt."
    return Recognised("unknown", "Not recognized", why, ColumnMapping(prompt=prompt))


def _may_be_prompt(rows: Rows, name: str) -> bool:
    """Return whether a column contains text other than row numbers and identifiers, judged by its name and values."""
    return not DESCRIPTIVE_WORDS.intersection(name_words(name)) and all_match(
        rows, name, lambda value: isinstance(value, str) and not _IDENTIFIER.fullmatch(value.strip())
    )


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
    stripped_instruction = instruction.strip() if isinstance(instruction, str) else ""
    return bool(stripped_instruction) and not (isinstance(prompt, str) and stripped_instruction in prompt)


def _final_answer_after_a_marker(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    answer = guess.mapping.answer
    if not answer or not all_match(rows, answer, lambda value: isinstance(value, str) and GSM8K_MARKER in value):
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
    if not column or not all_match(rows, column, has_reasoning):
        return guess
    why = f"{guess.why} The first responses reason in <think>…</think>, and the answers are extracted from them."
    system_prompt = guess.mapping.system_prompt or THINK_PROMPT
    mapping = replace(guess.mapping, transform=THINK, system_prompt=system_prompt)
    return Recognised("think", "Reasoning in think tags", why, mapping)


def _follow_up_turn(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    pair = next(((names[a], names.get(b, "")) for a, b in FOLLOW_UPS if a in names), None)
    if pair is None or guess.mapping.messages or not guess.mapping.answer:
        return guess
    why = f"{guess.why} In rows that have “{pair[0]}”, it continues the prompt after the first answer."
    mapping = replace(guess.mapping, follow_up=pair[0], follow_up_response=pair[1])
    return replace(guess, schema="multi_turn", title=f"{guess.title}, with a follow-up", why=why, mapping=mapping)


def _code_with_tests(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    def has_tests(row: Mapping[str, Any], name: str, *, is_named: bool) -> bool:
        return is_tests(value_of(row, name), is_named=is_named, row=row)

    known = [names[name] for name in TESTS if name in names]
    column = next((name for name in known if any(has_tests(row, name, is_named=True) for row in rows)), "")
    others = [name for name in names.values() if name != guess.mapping.prompt]
    column = column or next((n for n in others if rows and all(has_tests(r, n, is_named=False) for r in rows)), "")
    if not column:
        return guess
    why = f"{guess.why} “{column}” contains tests for each row's code."
    has_all_tests = guess.mapping.transform == INSTRUCTION and all(has_tests(r, column, is_named=True) for r in rows)
    transform = WITH_TESTS if has_all_tests else guess.mapping.transform
    mapping = replace(guess.mapping, test_cases=column, transform=transform)
    if not mapping.answer or mapping.answer == column or mapping.answer.startswith(f"{column}."):
        rest = {key: name for key, name in names.items() if not name.startswith(column) and name != mapping.prompt}
        filled = {key: name for key, name in rest.items() if all(map(answer_texts, (value_of(r, name) for r in rows)))}
        solved = {key: name for key, name in filled.items() if all_match(rows, name, bool) and _are_answers(rows, name)}
        mapping = replace(
            mapping, answer=with_word(("solution", "code"), solved, excluded=("test", "starter", "setup"))
        )
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


def _system_column(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    column = first(SYSTEM, names)
    if not column or not all_match(rows, column, lambda value: isinstance(value, str)):
        return guess
    why = f"{guess.why} “{column}” is each row's system prompt."
    return replace(guess, why=why, mapping=replace(guess.mapping, system=column))


def _context_below(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    """Put the text that a question is about below it."""
    mapping, column = guess.mapping, first(CONTEXTS, names)
    taken = (mapping.prompt, mapping.answer, mapping.test_cases, mapping.system)
    if mapping.messages or mapping.input or not mapping.prompt or not column or column in taken:
        return guess
    if not all_match(rows, column, lambda value: isinstance(value, str)):
        return replace(guess, why=f"{guess.why} The prompt lacks “{column}”, which isn't text.")
    if any(str(value_of(row, column) or "-") in str(value_of(row, mapping.prompt)) for row in rows):
        return guess
    why = f"{guess.why} “{column}” is put below the prompt in rows that have it."
    return replace(guess, why=why, mapping=replace(mapping, input=column))


def _multiple_choice(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    answers = [guess.mapping.answer] if guess.mapping.answer else [names[n] for n in CHOICE_ANSWERS if n in names]
    tried = (with_choices(replace(guess.mapping, answer=answer), rows, names) for answer in answers)
    mapping = next((mapping for mapping in tried if mapping), None)
    if mapping is None or not mapping.prompt:
        return guess
    reason = guess.why if guess.mapping.answer else f"{guess.why.partition(', and no column')[0]}."
    why = f"{reason} The choices are put below the question, and “{mapping.answer}” becomes a letter."
    return replace(guess, schema="multiple_choice", title="Multiple choice", why=why, mapping=mapping)


def _templated(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    """Propose plain text if the prompts already contain a chat template's tokens."""
    if guess.mapping.messages or not guess.mapping.prompt:
        return guess
    if not all_match(rows, guess.mapping.prompt, lambda text: any(p.search(str(text)) for p in TEMPLATES)):
        return guess
    why = f"{guess.why} The prompts already contain a chat template's tokens, so they stay plain text."
    return replace(guess, why=why, mapping=replace(guess.mapping, chat=False))


def _difficulty_and_tags(guess: Recognised, rows: Rows, names: Mapping[str, str]) -> Recognised:
    used_columns = set(guess.mapping.as_dict().values())
    unused_columns = {key: name for key, name in names.items() if name not in used_columns and "." not in name}
    difficulty, tags = first(DIFFICULTY, unused_columns), first(TAGS, unused_columns)
    uses = [f"“{column}” as {role}" for column, role in ((difficulty, "difficulty"), (tags, "tags")) if column]
    if not uses:
        return guess
    why = f"{guess.why} It uses {' and '.join(uses)}."
    return replace(guess, why=why, mapping=replace(guess.mapping, difficulty=difficulty, tags=tags))


_REFINEMENTS: tuple[Callable[[Recognised, Rows, Mapping[str, str]], Recognised], ...] = (
    _instruction_above,
    _final_answer_after_a_marker,
    _reasoning,
    _follow_up_turn,
    _code_with_tests,
    _human_eval,
    _system_column,
    _context_below,
    _multiple_choice,
    _templated,
    _difficulty_and_tags,
)


def _are_answers(rows: Rows, name: str) -> bool:
    values = [value_of(row, name) for row in rows]
    return holds(rows, name, lambda value: bool(answer_texts(value))) and not is_ordered(name, values)
