"""The quick half of the check: types, required fields, roles and lengths of every row, and equal prompts."""

from __future__ import annotations

from array import array
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from controlplane.catalogue.datasets.reader.checking import processes
from controlplane.catalogue.datasets.reader.checking.checks import Checker, excerpt
from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.mapping import COLUMN_FIELDS, ColumnMapping, resolved
from controlplane.catalogue.datasets.reader.columns.recognising_columns import Recognised, recognise
from controlplane.catalogue.datasets.reader.limits import MOST_ROWS
from controlplane.catalogue.datasets.reader.parsing import formats, records, schema
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.parsing.schema import Counts, Schema
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

SAMPLE_ROWS = 500
SAMPLE_BYTES = 8 * 2**20
SAMPLE_RECORDS = 20_000
"""Maximum records, good and bad, to sample from."""
GROUP, GROUPS = 8, 5
"""Rows per recognition of the schema, and number of recognitions."""
MOST_DUPLICATES = 1_000_000
"""Repeated prompts to report; all are counted."""


@dataclass
class FirstPassResult:
    """The result of the first pass, which may have stopped early."""

    lines: int = 0
    rows: int = 0
    """Readable rows, usable or not."""
    records: int = 0
    """All rows, readable or not."""
    blank: int = 0
    duplicates: int = 0
    columns: Counts = field(default_factory=dict)
    sample: list[dict[str, Any]] = field(default_factory=list)
    recognised: Recognised | None = None
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """The recognised or the given one, with its transform's default columns."""


def run(
    source: RowSource,
    mapping: ColumnMapping | None,
    collector: Collector,
    progress: ProgressFile,
    result: FirstPassResult,
) -> None:
    """Fill `result` and report problems to `collector`. Raises FileProblem."""
    result.sample = _sample(source, collector.add)
    seen = Schema(result.sample)
    result.columns = {name: Counter() for name in seen.counts}
    result.recognised = _recognised(result.sample, seen)
    result.mapping = resolved(mapping) if mapping else _possible(resolved(result.recognised.mapping), seen)
    with Duplicates(source.path.parent) as duplicates:
        first_pass = _FirstPass(seen, collector, progress, result, duplicates)
        first_pass.run(source)
        if not collector.gave_up and result.mapping.prompt:
            first_pass.report_duplicates()


def _sample(source: RowSource, remark: records.Remark) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    size = 0
    for record in islice(source.read(remark=remark), SAMPLE_RECORDS):
        if record.row is not None:
            rows.append(record.row)
            size += len(record.raw) if record.raw else 1000
        if len(rows) >= SAMPLE_ROWS or size >= SAMPLE_BYTES:
            break
    return rows


def _recognised(sample: list[dict[str, Any]], seen: Schema) -> Recognised:
    """The schema of most groups of the first rows, so that one bad row doesn't change the result."""
    columns = [{"name": name, "share": _share(sample, name)} for name in seen.main or seen.counts]
    typical = [row for row in sample[:200] if not seen.oddity(row)[0]] or sample
    groups = [typical[at : at + GROUP] for at in range(0, min(len(typical), GROUPS * GROUP), GROUP)] or [[]]
    candidates = [recognise(group, columns) for group in groups]
    most = Counter(candidate.mapping for candidate in candidates).most_common(1)[0][0]
    return next(candidate for candidate in candidates if candidate.mapping == most)


def _share(sample: list[dict[str, Any]], name: str) -> float:
    """The share of rows with a value in the column."""
    values = [value.strip() if isinstance(value := row.get(name), str) else value for row in sample]
    return sum(value not in (None, "") for value in values) / max(1, len(sample))


def _possible(mapping: ColumnMapping, seen: Schema) -> ColumnMapping:
    """Drop columns that no sampled row has: a wrong guess would make every row an error."""
    if mapping.prompt not in seen.counts:
        return ColumnMapping()
    gone: dict[str, Any] = {name: "" for name in COLUMN_FIELDS if getattr(mapping, name) not in seen.counts}
    return replace(mapping, **gone)


class _FirstPass:
    def __init__(
        self,
        seen: Schema,
        collector: Collector,
        progress: ProgressFile,
        result: FirstPassResult,
        duplicates: Duplicates,
    ) -> None:
        self._collector = collector
        self._progress = progress
        self._result = result
        self._duplicates = duplicates
        self._checks = _RawRowChecks(seen, result.mapping)

    def run(self, source: RowSource) -> None:
        result, at = self._result, 0
        results = processes.map_batches(source.batches, self._checks.check, processes.useful(source.path))
        with closing(results):
            for batch in results:
                if not batch.end.line:
                    continue  # blank lines only
                if batch.end.number >= MOST_ROWS:
                    raise FileProblem("too_many_rows", f"The file has more than {MOST_ROWS:,} rows.")
                end, at = self._add(batch), batch.at
                result.lines, result.rows, result.records = end.line, result.rows + end.rows, end.number + 1
                result.blank = end.line - result.records if source.format.kind == formats.JSONL else 0
                self._progress.at(at, result.rows)
                if self._collector.gave_up:
                    break
        self._progress.at(at, result.rows, now=True)
        if not result.lines or not (result.rows or self._collector.errors):
            message = "The file has only blank lines." if result.lines else "The file has no row."
            raise FileProblem("empty_file", message)

    def _add(self, batch: _FirstPassFindings) -> _SourcePlace:
        """Add a batch's results. Returns its last record, or the one at which the collector gave up."""
        for place, problems in batch.problems:
            for problem in problems:
                self._collector.add(problem)
            if self._collector.gave_up:
                return place
        schema.add(self._result.columns, batch.columns)
        self._duplicates.add_all(batch.keys, batch.lines)
        return batch.end

    def report_duplicates(self) -> None:
        for line, first in self._duplicates.repeats():
            self._result.duplicates += 1
            if self._result.duplicates <= MOST_DUPLICATES:
                message = f"The prompt is the same as in line {first:,}."
                self._collector.add(DataProblem(line, "exact_duplicate", message, field=self._result.mapping.prompt))


class _SourcePlace(NamedTuple):
    """The position of a record. `rows`: number of readable rows in its batch up to it."""

    line: int
    number: int
    rows: int


@dataclass
class _FirstPassFindings:
    """The results for a batch of records. `at`: as in records.RecordBatch; `end`: the last record; `problems`: by
    record; `keys`: prompt hashes of the good rows, whose lines are `lines`."""

    at: int
    end: _SourcePlace
    columns: Counts = field(default_factory=dict)
    problems: list[tuple[_SourcePlace, list[DataProblem]]] = field(default_factory=list)
    keys: array[int] = field(default_factory=partial(array, "q"))
    lines: array[int] = field(default_factory=partial(array, "q"))


class _RawRowChecks:
    def __init__(self, seen: Schema, mapping: ColumnMapping) -> None:
        self._schema = seen
        self._checker = Checker(mapping)
        self._has_prompt = bool(mapping.prompt)

    def check(self, batch: records.RecordBatch) -> _FirstPassFindings:
        findings, rows = _FirstPassFindings(batch.at, _SourcePlace(0, -1, 0)), 0
        for record in batch.records():
            problems = list(record.problems)
            if record.row is not None:
                rows += 1
                schema.count(findings.columns, record.row)
                problems += self._problems(record, record.row)
                if self._has_prompt and all(KINDS[problem.kind].level != ERROR for problem in problems):
                    findings.keys.append(hash(self._checker.key(record.row)))
                    findings.lines.append(record.line)
            findings.end = _SourcePlace(record.line, record.number, rows)
            if problems:
                findings.problems.append((findings.end, problems))
        return findings

    def _problems(self, record: Record, row: dict[str, Any]) -> list[DataProblem]:
        problems = self._checker.problems(row, record.line, record.byte)
        oddity, name = self._schema.oddity(row)
        if oddity and not any(problem.field == name for problem in problems):
            problems.append(
                DataProblem(record.line, "mixed_schemas", oddity, excerpt(row), byte=record.byte, field=name)
            )
        return problems
