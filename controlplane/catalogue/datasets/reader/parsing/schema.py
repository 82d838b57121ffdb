"""Columns and types of a file, and which of them are usual, to detect rows with a different schema."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible
from controlplane.catalogue.datasets.reader.limits import MAX_COLUMNS
from controlplane.catalogue.datasets.reader.problems import FileProblem

MAX_ODD_SHARE = 0.01
"""Maximum share of the sampled rows that may lack a column that every row should have."""
MIN_ROWS = 10
"""Minimum number of rows to distinguish usual from odd ones."""
TEXT, NUMBER, BOOLEAN, LIST, OBJECT, NULL = "text", "number", "true or false", "list", "object", "null"
_TYPES: dict[type, str] = {
    str: TEXT,
    int: NUMBER,
    float: NUMBER,
    bool: BOOLEAN,
    list: LIST,
    dict: OBJECT,
    type(None): NULL,
}

Counts = dict[str, Counter[str]]
"""Number of rows by column and type of value."""


class Schema:
    """Columns and types that the first rows of a file have in common."""

    def __init__(self, sample: Iterable[Mapping[str, Any]]) -> None:
        self.rows = 0
        counts: Counts = {}
        for row in sample:
            self.rows += 1
            count(counts, row)
        self.counts = counts
        max_odd_rows = max(2, int(MAX_ODD_SHARE * self.rows)) if self.rows >= MIN_ROWS else 0
        self.usual = {name for name, kinds in counts.items() if kinds.total() >= self.rows - max_odd_rows}
        self.main = {name: _main(kinds) for name, kinds in counts.items() if kinds.total() > max_odd_rows // 2}
        """Type of most values of each column (null if it has none), without columns that hardly any row has."""

    def oddity(self, row: Mapping[str, Any]) -> tuple[str, str]:
        """Return (sentence, field) about how the row differs from most rows; ("", "") if it doesn't."""
        for name, value in row.items():
            main = self.main.get(name)
            if main is None:
                return f"The row has a field “{visible(name)}”, which hardly any row has.", visible(name)
            kind = _TYPES.get(type(value), OBJECT)
            if kind not in (main, NULL) and main != NULL:
                return f"“{visible(name)}” is of type {kind} here, and of type {main} in most rows.", visible(name)
        if not self.usual <= row.keys():
            missing = next(name for name in self.main if name in self.usual and name not in row)
            return f"The row lacks the field “{visible(missing)}”, which nearly all rows have.", visible(missing)
        return "", ""


def count(counts: Counts, row: Mapping[str, Any]) -> None:
    """Count a row's fields. Raises FileProblem if there are too many different ones."""
    for name, value in row.items():
        kinds = counts.get(name)
        if kinds is None:
            kinds = _add_column(counts, name)
        kinds[_TYPES.get(type(value), OBJECT)] += 1


def add(counts: Counts, more_counts: Counts) -> None:
    """Add the counts of more rows to `counts`. Raises FileProblem as `count` does."""
    for name, kinds in more_counts.items():
        total = counts.get(name)
        (_add_column(counts, name) if total is None else total).update(kinds)


def _add_column(counts: Counts, name: str) -> Counter[str]:
    if len(counts) >= MAX_COLUMNS:
        raise FileProblem(
            "too_many_columns",
            f"The rows have more than {MAX_COLUMNS} different fields; each row should have the same ones.",
        )
    counts[name] = Counter()
    return counts[name]


def as_columns(counts: Counts) -> list[dict[str, Any]]:
    """Return the "columns" of a report, where "filled" is the number of rows with a value other than null."""
    return [
        {"name": visible(name), "filled": kinds.total() - kinds[NULL], "types": dict(kinds.most_common())}
        for name, kinds in counts.items()
    ]


def _main(kinds: Counter[str]) -> str:
    return next((kind for kind, _ in kinds.most_common() if kind != NULL), NULL)
