"""The columns and types of a file, and which are usual, to detect rows of another schema."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.limits import MAX_COLUMNS
from controlplane.catalogue.datasets.reader.problems import FileProblem

ODD = 0.01
"""Share of the sampled rows that may lack a column that every row should have."""
ENOUGH = 10
"""Rows needed to distinguish usual from odd ones."""
TEXT, NUMBER, TRUTH, LIST, OBJECT, NULL = "text", "number", "true or false", "list", "object", "null"
_TYPES: dict[type, str] = {
    str: TEXT,
    int: NUMBER,
    float: NUMBER,
    bool: TRUTH,
    list: LIST,
    dict: OBJECT,
    type(None): NULL,
}

Counts = dict[str, Counter[str]]
"""Column -> type of value -> number of rows."""


class Schema:
    """The columns and types that the first rows of a file have in common."""

    def __init__(self, sample: Iterable[Mapping[str, Any]]) -> None:
        self.rows = 0
        counts: Counts = {}
        for row in sample:
            self.rows += 1
            count(counts, row)
        self.counts = counts
        odd = max(2, int(ODD * self.rows)) if self.rows >= ENOUGH else 0
        self.usual = {name for name, kinds in counts.items() if kinds.total() >= self.rows - odd}
        self.main = {name: _main(kinds) for name, kinds in counts.items() if kinds.total() > odd // 2}
        """Column -> type of most of its values (null if there are none), without columns that hardly any row has."""

    def oddity(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Describe how a row differs from the usual: (sentence, field), both empty for usual rows."""
        for name, value in row.items():
            main = self.main.get(name)
            if main is None:
                return f"The row has a field “{visible(name)}”, which hardly any row has.", visible(name)
            kind = _TYPES.get(type(value), OBJECT)
            if kind not in (main, NULL) and main != NULL:
                return f"“{visible(name)}” is of type {kind} here, and of type {main} in most rows.", visible(name)
        if not self.usual <= row.keys():
            lacking = next(name for name in self.main if name in self.usual and name not in row)
            return f"The row lacks the field “{visible(lacking)}”, which nearly all rows have.", visible(lacking)
        return "", ""


def count(counts: Counts, row: Mapping[str, Any]) -> None:
    """Add a row. Raises FileProblem once there are too many different fields."""
    for name, value in row.items():
        kinds = counts.get(name)
        if kinds is None:
            kinds = _new(counts, name)
        kinds[_TYPES.get(type(value), OBJECT)] += 1


def add(counts: Counts, further: Counts) -> None:
    """Add the counts of further rows. Raises FileProblem as `count` does."""
    for name, kinds in further.items():
        total = counts.get(name)
        (_new(counts, name) if total is None else total).update(kinds)


def _new(counts: Counts, name: str) -> Counter[str]:
    if len(counts) >= MAX_COLUMNS:
        raise FileProblem(
            "too_many_columns",
            f"The rows have more than {MAX_COLUMNS} different fields; each row should have the same ones.",
        )
    counts[name] = Counter()
    return counts[name]


def as_columns(counts: Counts) -> list[dict[str, Any]]:
    """List the report's "columns". `filled`: rows with a value in it that isn't null."""
    return [
        {"name": visible(name), "filled": kinds.total() - kinds[NULL], "types": dict(kinds.most_common())}
        for name, kinds in counts.items()
    ]


def _main(kinds: Counter[str]) -> str:
    return next((kind for kind, _ in kinds.most_common() if kind != NULL), NULL)
