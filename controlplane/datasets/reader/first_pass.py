"""The quick half of the check: the types, required fields, roles and lengths of every row, and equal prompts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from controlplane.datasets.reader import formats, records, schema
from controlplane.datasets.reader.checks import Checker, excerpt
from controlplane.datasets.reader.duplicates import Duplicates
from controlplane.datasets.reader.formats import Format
from controlplane.datasets.reader.mapping import COLUMN_FIELDS, ColumnMapping, resolved
from controlplane.datasets.reader.problems import ERROR, KINDS, FileProblem, Problem
from controlplane.datasets.reader.progress_file import ProgressFile
from controlplane.datasets.reader.recognising import Recognised, recognise
from controlplane.datasets.reader.records import Record
from controlplane.datasets.reader.report import Collector
from controlplane.datasets.reader.schema import Counts, Schema

SAMPLE_ROWS = 500
SAMPLE_BYTES = 8 * 2**20
SAMPLE_RECORDS = 20_000
"""Good and bad ones, to find so many rows in."""
GROUP, GROUPS = 8, 5
"""Rows that a schema is recognised by, and how often."""
MOST_ROWS = 20_000_000
DUPLICATES_TOLD = 1_000_000
"""Of prompts that are there already; all are counted."""


@dataclass
class FirstPassResult:
    """What the pass knows of the file once it is through, or as far as it came."""

    lines: int = 0
    rows: int = 0
    """That can be read, whether or not they can be used."""
    blank: int = 0
    duplicates: int = 0
    columns: Counts = field(default_factory=dict)
    sample: list[dict[str, Any]] = field(default_factory=list)
    recognised: Recognised | None = None
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """The recognised or the given one, with the columns that its transform takes."""


def run(
    path: Path,
    format: Format,  # noqa: A002 -- what it is
    mapping: ColumnMapping | None,
    collector: Collector,
    progress: ProgressFile,
    found: FirstPassResult,
) -> None:
    """Fill `found` and tell `collector`. Raises FileProblem."""
    found.sample = _sample(path, format)
    seen = Schema(found.sample)
    found.columns = {name: Counter() for name in seen.counts}
    found.recognised = _recognised(found.sample, seen)
    found.mapping = _possible(resolved(mapping or found.recognised.mapping), seen)
    with Duplicates(path.parent) as duplicates:
        one = _FirstPass(seen, collector, progress, found, duplicates)
        one.run(path, format)
        if not collector.gave_up and found.mapping.prompt:
            one.tell_duplicates()


def _sample(path: Path, format: Format) -> list[dict[str, Any]]:  # noqa: A002 -- what it is
    rows: list[dict[str, Any]] = []
    size = 0
    for record in islice(records.read(path, format), SAMPLE_RECORDS):
        if record.row is not None:
            rows.append(record.row)
            size += len(record.raw) if record.raw else 1000
        if len(rows) >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return rows


def _recognised(sample: list[dict[str, Any]], seen: Schema) -> Recognised:
    """What most groups of the first rows look like: one bad row among them doesn't change what the file is."""
    columns = [{"name": name, "share": _share(sample, name)} for name in seen.main or seen.counts]
    typical = [row for row in sample[:200] if not seen.oddity(row)[0]] or sample
    groups = [typical[at : at + GROUP] for at in range(0, min(len(typical), GROUPS * GROUP), GROUP)] or [[]]
    told = [recognise(group, columns) for group in groups]
    most = Counter(one.mapping for one in told).most_common(1)[0][0]
    return next(one for one in told if one.mapping == most)


def _share(sample: list[dict[str, Any]], name: str) -> float:
    """Of the rows, how many have something in the column."""
    filled = sum(1 for row in sample if (value := row.get(name)) is not None and not _blank(value))
    return filled / max(1, len(sample))


def _blank(value: Any) -> bool:
    return isinstance(value, str) and not value.strip()


def _possible(mapping: ColumnMapping, seen: Schema) -> ColumnMapping:
    """Without the columns that no sampled row has: a guess must not make an error of every row."""
    if mapping.prompt not in seen.counts:
        return ColumnMapping()
    gone: dict[str, Any] = {name: "" for name in COLUMN_FIELDS if getattr(mapping, name) not in seen.counts}
    return replace(mapping, **gone)


class _FirstPass:
    def __init__(
        self, seen: Schema, collector: Collector, progress: ProgressFile, found: FirstPassResult, duplicates: Duplicates
    ) -> None:
        self._schema = seen
        self._collector = collector
        self._progress = progress
        self._found = found
        self._duplicates = duplicates
        self._checker = Checker(found.mapping)

    def run(self, path: Path, format: Format) -> None:  # noqa: A002 -- what it is
        at = last = 0

        def told(read: int) -> None:
            nonlocal at
            at = read
            self._progress.at(read, self._found.rows)

        for record in records.read(path, format, told, self._collector.add):
            if record.number >= MOST_ROWS:
                raise FileProblem("too_many_rows", f"The file has more than {MOST_ROWS:,} rows.")
            self._found.lines = record.line
            if format.kind == formats.JSONL:
                self._found.blank += record.line - last - 1
                last = record.line
            self._check(record)
            if self._collector.gave_up:
                break
        self._progress.at(at, self._found.rows, now=True)
        if not self._found.lines or not (self._found.rows or self._collector.errors):
            said = "The file has only blank lines." if self._found.lines else "The file has no row."
            raise FileProblem("empty_file", said)

    def _check(self, record: Record) -> None:
        for problem in record.problems:
            self._collector.add(problem)
        row = record.row
        if row is None:
            return
        self._found.rows += 1
        schema.count(self._found.columns, row)
        problems = self._checker.problems(row, record.line, record.byte)
        oddity, name = self._schema.oddity(row)
        if oddity and not any(problem.field == name for problem in problems):
            problems.append(Problem(record.line, "mixed_schemas", oddity, excerpt(row), byte=record.byte, field=name))
        for problem in problems:
            self._collector.add(problem)
        if self._found.mapping.prompt and all(KINDS[problem.kind].level != ERROR for problem in problems):
            self._duplicates.add(self._checker.key(row), record.line)

    def tell_duplicates(self) -> None:
        for line, first in self._duplicates.found():
            self._found.duplicates += 1
            if self._found.duplicates <= DUPLICATES_TOLD:
                message = f"The prompt is the same as in line {first:,}."
                self._collector.add(Problem(line, "exact_duplicate", message, field=self._found.mapping.prompt))
