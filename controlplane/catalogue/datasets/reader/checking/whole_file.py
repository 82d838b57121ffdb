"""Check of what is right in one row and probably wrong if most rows show it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.choices import FROM_0, FROM_1, LETTERS, choices_of
from controlplane.catalogue.datasets.reader.columns.code_tests import is_tests
from controlplane.catalogue.datasets.reader.columns.fields import means_several, parse_list
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, prompt_text
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from controlplane.catalogue.datasets.reader.problems import DataProblem
from workers.rewards.extract import OTHER_ANSWERS, PUNCTUATION

ANSWERS, ENDING, CONTAINED, SEVERAL, IN_BRACKETS, NUMBERED, AT_AN_END, WITH_ZERO, TESTS = range(9)
"""Facts about a row: it has an answer of two characters or more; its prompt ends with that answer, or contains it; each
item of a list is right; the answer is a JSON list as text; it is numbered; it is the first or the last choice; it is a
whole number with “.0”; it holds tests."""
MIN_ROWS = 4
ENDING_SHARE, CONTAINED_SHARE = 0.5, 0.9
"""Shares of the rows beyond which it is told that prompts end with, or contain, their answers."""
_WHOLE_FLOAT = re.compile(r"[+-]?\d{1,15}\.0")
_EDGE = PUNCTUATION + " \n\t"


def facts(row: Mapping[str, Any], source_row: Mapping[str, Any], mapping: ColumnMapping) -> Iterator[int]:
    """Yield the facts about a row from mapping.canonical, made of `source_row`."""
    answer = (row["answer"] or "").strip(_EDGE)
    if mapping.numbering:
        yield NUMBERED
        if row["answer"] == _end_letter(source_row, mapping):
            yield AT_AN_END
    elif not mapping.choices and len(answer) > 1 and mapping.prompt:
        yield ANSWERS
        prompt = prompt_text(row["prompt"])
        text = prompt.rstrip(_EDGE)
        if text.endswith(answer) and _is_word(text, len(text) - len(answer), len(text)):
            yield ENDING
        start = prompt.find(answer)
        if start >= 0 and _is_word(prompt, start, start + len(answer)):
            yield CONTAINED
    is_list = OTHER_ANSWERS in row["metadata"] and isinstance(value_of(source_row, mapping.answer), list)
    if is_list and not means_several(mapping.answer):
        yield SEVERAL
    first = (row["answer"] or "")[:1]
    if first == "[" and parse_list(row["answer"]):
        yield IN_BRACKETS
    elif first == "{" and not mapping.test_cases and is_tests(row["answer"], is_named=False, row=source_row):
        yield TESTS
    elif row["answer"] and row["answer"].endswith(".0") and _WHOLE_FLOAT.fullmatch(row["answer"]):
        yield WITH_ZERO


def _is_word(text: str, start: int, end: int) -> bool:
    return not (text[max(0, start - 1) : start].isalnum() or text[end : end + 1].isalnum())


def problems(counts: Mapping[int, int], mapping: ColumnMapping) -> Iterator[DataProblem]:
    """Yield the problems of a file with these numbers of rows by fact."""
    rows, name = counts.get(ANSWERS, 0), mapping.answer
    if rows >= MIN_ROWS and counts.get(ENDING, 0) > ENDING_SHARE * rows:
        text = f"The prompts of {counts[ENDING]:,} of {rows:,} rows end with their answers."
        yield DataProblem(0, "answer_in_prompt", text, field=mapping.prompt)
    elif rows >= MIN_ROWS and counts.get(CONTAINED, 0) > CONTAINED_SHARE * rows:
        text = (
            f"The prompts of {counts[CONTAINED]:,} of {rows:,} rows contain their answers. That is right only if they "
            "are a text to read or list the choices."
        )
        yield DataProblem(0, "answer_in_prompt", text, field=mapping.prompt)
    if several := counts.get(SEVERAL, 0):
        text = f"“{name}” is a list in {several:,} rows; each of its items counts as a right answer by itself."
        yield DataProblem(0, "several_answers", text, field=name)
    if in_brackets := counts.get(IN_BRACKETS, 0):
        text = f"“{name}” is a JSON list as text in {in_brackets:,} rows, and stays one, with its brackets and quotes."
        yield DataProblem(0, "list_as_text", text, field=name)
    if with_zero := counts.get(WITH_ZERO, 0):
        text = (
            f"“{name}” is a whole number with “.0” in {with_zero:,} rows. An exact comparison finds it different from "
            "the same number without."
        )
        yield DataProblem(0, "whole_floats", text, field=name)
    if tests := counts.get(TESTS, 0):
        text = f"“{name}” holds the inputs and outputs of tests in {tests:,} rows, but is used as their answer."
        yield DataProblem(0, "tests_as_answer", text, field=name)
    if counts.get(NUMBERED, 0) >= 1 and not counts.get(AT_AN_END, 0):
        other, end = (FROM_1, "first") if mapping.numbering == FROM_0 else (FROM_0, "last")
        text = (
            f"“{name}” is read as numbers {mapping.numbering}, but no row has the {end} choice, so it may also count "
            f"{other}. Both fit all rows."
        )
        yield DataProblem(0, "unclear_numbering", text, field=name)


def _end_letter(source_row: Mapping[str, Any], mapping: ColumnMapping) -> str:
    """Return the letter that only this numbering can name: the first one from 0, or the last one from 1."""
    if mapping.numbering == FROM_0 or not mapping.choices:
        return LETTERS[0]
    return LETTERS[len(choices_of(source_row, mapping.choices)[0]) - 1]
