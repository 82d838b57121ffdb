"""Recognition of multiple-choice questions: the columns of the choices, and how the answers name the right one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import Any

from controlplane.catalogue.datasets.reader.columns.choices import FROM_0, FROM_1, LETTERS, choices_of, right_letters
from controlplane.catalogue.datasets.reader.columns.column_names import CHOICE_COLUMN_PATTERNS, CHOICES
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.columns.paths import value_of
from controlplane.catalogue.datasets.reader.columns.templating import PROMPT

Rows = Sequence[Mapping[str, Any]]
_CHOICE_LINE = re.compile(r"^[A-Z]\) \{", re.MULTILINE)


def with_choices(mapping: ColumnMapping, rows: Rows, names: Mapping[str, str]) -> ColumnMapping | None:
    """Return the mapping with the choices below the question, or None if the rows aren't multiple choice."""
    column = next((names[n] for n in CHOICES if n in names), "")
    singles = next(
        (found for pattern, first in CHOICE_COLUMN_PATTERNS if (found := _single_choices(names, pattern, first))), []
    )
    are_texts = all(isinstance(row.get(name), str) for row in rows for name in singles)  # numbers are a task's own
    if not mapping.answer or not rows or not (column or (len(singles) > 1 and are_texts)):
        return None
    try:
        numbering = _numbering(rows, mapping.answer, column, len(singles))
        for row in rows:
            right_letters(row, mapping.answer, column, numbering)
    except RowProblem:
        return None
    if column:
        mapping = replace(mapping, choices=column, numbering=numbering)
    else:
        lines = "\n".join(f"{LETTERS[number]}) {{{name}}}" for number, name in enumerate(singles))
        mapping = replace(mapping, template=f"{mapping.template or f'{{{PROMPT}}}'}\n\n{lines}", numbering=numbering)
    return mapping


def _numbering(rows: Rows, answer: str, column: str, count: int) -> str:
    """Return how the answers number the choices: from 1 if an answer is its row's number of choices, otherwise from
    0."""
    given = [str(value_of(row, answer)).removesuffix(".0") for row in rows]
    choices = [choices_of(row, column) for row in rows] if column else []
    is_number = all(isinstance(value_of(row, answer), int | float) for row in rows)
    names_texts = bool(choices) and all(
        name in (*texts, *labels) for name, (texts, labels) in zip(given, choices, strict=True)
    )
    if not all(map(str.isdecimal, given)) or (names_texts and not is_number):
        return ""
    counts = [len(texts) for texts, _ in choices] or [count] * len(given)
    is_last = any(name == str(count) for name, count in zip(given, counts, strict=True))
    return FROM_1 if is_last and "0" not in given else FROM_0


def numbered_by(mapping: ColumnMapping, rows: Rows) -> ColumnMapping:
    """Return a mapping with the numbering that more rows suggest, if all of these fit it."""
    if not mapping.numbering:
        return mapping
    fitting = [row for row in rows if value_of(row, mapping.answer) not in (None, "")]
    try:
        count = len(_CHOICE_LINE.findall(mapping.template))
        numbering = _numbering(fitting, mapping.answer, mapping.choices, count)
    except RowProblem:
        return mapping
    return replace(mapping, numbering=numbering) if numbering else mapping


def _single_choices(names: Mapping[str, str], pattern: str, first: str) -> list[str]:
    keys = (pattern.format(chr(ord(first) + number)) for number in range(10))
    return [names[key] for key in takewhile(names.__contains__, keys)]
