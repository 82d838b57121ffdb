"""The quick half of the check, which finds wrong types, missing fields, wrong roles and equal prompts."""

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
from controlplane.catalogue.datasets.reader.limits import MAX_ROWS
from controlplane.catalogue.datasets.reader.parsing import formats, records, schema
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.parsing.schema import Counts, Schema
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

SAMPLE_ROWS = 500
SAMPLE_BYTES = 8 * 2**20
SAMPLE_RECORDS = 20_000
"""Maximum number of records, good and bad, to sample from."""
GROUP_ROWS, MAX_GROUPS = 8, 5
"""Rows of a group from which the schema is recognised, and maximum number of groups."""
MAX_DUPLICATES = 1_000_000
"""Maximum number of repeated prompts to report; all are counted."""


@dataclass
class FirstPassResult:
    """Result of the first pass, which may have stopped early."""

    lines: int = 0
    rows: int = 0
    """Number of readable rows, usable or not."""
    records: int = 0
    """Number of all rows, readable or not."""
    blank: int = 0
    duplicates: int = 0
    columns: Counts = field(default_factory=dict)
    sample: list[dict[str, Any]] = field(default_factory=list)
    recognised: Recognised | None = None
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """Given or recognised mapping, with its transform's default columns."""


def run(
    source: RowSource,
    mapping: ColumnMapping | None,
    collector: Collector,
    progress: ProgressFile,
    result: FirstPassResult,
) -> None:
    """Run the first pass, filling in `result` and reporting problems to `collector`. Raises FileProblem."""
    result.sample = _sample(source, collector.add)
    sampled = Schema(result.sample)
    result.columns = {name: Counter() for name in sampled.counts}
    result.recognised = _recognised(result.sample, sampled)
    recognised = resolved(result.recognised.mapping)
    result.mapping = resolved(mapping) if mapping else _without_missing_columns(recognised, sampled)
    check = partial(_check_batch, sampled=sampled, checker=Checker(result.mapping))
    with (
        Duplicates(source.path.parent) as duplicates,
        closing(processes.map_batches(source.batches, check, processes.useful_processes(source.path))) as batches,
    ):
        bytes_read = 0
        for batch in batches:
            if not batch.end.line:
                continue  # blank lines only
            if batch.end.number >= MAX_ROWS:
                raise FileProblem("too_many_rows", f"The file has more than {MAX_ROWS:,} rows.")
            end, bytes_read = _add(batch, result, collector, duplicates), batch.bytes_read
            result.lines, result.rows, result.records = end.line, result.rows + end.rows, end.number + 1
            result.blank = end.line - result.records if source.format.kind == formats.JSONL else 0
            progress.report(bytes_read, result.rows)
            if collector.gave_up:
                break
        progress.report(bytes_read, result.rows, now=True)
        if not result.lines or not (result.rows or collector.errors):
            message = "The file has only blank lines." if result.lines else "The file has no rows."
            raise FileProblem("empty_file", message)
        if not collector.gave_up and result.mapping.prompt:
            _report_duplicates(duplicates, result, collector)


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


def _recognised(sample: list[dict[str, Any]], sampled: Schema) -> Recognised:
    """Return the schema recognised in most groups of the first rows, so that one bad row doesn't change the result."""
    columns = [{"name": name, "share": _filled_share(sample, name)} for name in sampled.main or sampled.counts]
    typical = [row for row in sample[:200] if not sampled.oddity(row)[0]] or sample
    end = min(len(typical), MAX_GROUPS * GROUP_ROWS)
    groups = [typical[start : start + GROUP_ROWS] for start in range(0, end, GROUP_ROWS)] or [[]]
    candidates = [recognise(group, columns) for group in groups]
    [(mapping, _)] = Counter(candidate.mapping for candidate in candidates).most_common(1)
    return next(candidate for candidate in candidates if candidate.mapping == mapping)


def _filled_share(sample: list[dict[str, Any]], name: str) -> float:
    values = [value.strip() if isinstance(value := row.get(name), str) else value for row in sample]
    return sum(value not in (None, "") for value in values) / max(1, len(sample))


def _without_missing_columns(mapping: ColumnMapping, sampled: Schema) -> ColumnMapping:
    """Drop columns that no sampled row has, since a wrong guess would make every row an error."""
    if mapping.prompt not in sampled.counts:
        return ColumnMapping()
    missing: dict[str, Any] = {name: "" for name in COLUMN_FIELDS if getattr(mapping, name) not in sampled.counts}
    return replace(mapping, **missing)


def _add(
    batch: "_FirstPassFindings", result: FirstPassResult, collector: Collector, duplicates: Duplicates
) -> "_RecordPosition":
    """Add a batch's findings, and return the position of its last record, or where the collector gave up."""
    for position, problems in batch.problems:
        for problem in problems:
            collector.add(problem)
        if collector.gave_up:
            return position
    schema.add(result.columns, batch.columns)
    duplicates.add_all(batch.keys, batch.lines)
    return batch.end


def _report_duplicates(duplicates: Duplicates, result: FirstPassResult, collector: Collector) -> None:
    for line, first in duplicates.repeats():
        result.duplicates += 1
        if result.duplicates <= MAX_DUPLICATES:
            message = f"The prompt is the same as in line {first:,}."
            collector.add(DataProblem(line, "exact_duplicate", message, field=result.mapping.prompt))


class _RecordPosition(NamedTuple):
    """Position of a record. `rows` is the number of readable rows in its batch, up to and including it."""

    line: int
    number: int
    rows: int


@dataclass
class _FirstPassFindings:
    """Findings in a batch of records: `bytes_read` as in records.RecordBatch, the last record `end`, the problems by
    record, and the prompt hashes and lines of the good rows."""

    bytes_read: int
    end: _RecordPosition
    columns: Counts = field(default_factory=dict)
    problems: list[tuple[_RecordPosition, list[DataProblem]]] = field(default_factory=list)
    keys: "array[int]" = field(default_factory=partial(array, "q"))
    lines: "array[int]" = field(default_factory=partial(array, "q"))


def _check_batch(batch: records.RecordBatch, sampled: Schema, checker: Checker) -> _FirstPassFindings:
    findings, rows = _FirstPassFindings(batch.bytes_read, _RecordPosition(0, -1, 0)), 0
    for record in batch.records():
        problems = list(record.problems)
        if record.row is not None:
            rows += 1
            schema.count(findings.columns, record.row)
            problems += _row_problems(record, record.row, sampled, checker)
            if checker.has_prompt and all(KINDS[problem.kind].level != ERROR for problem in problems):
                findings.keys.append(hash(checker.key(record.row)))
                findings.lines.append(record.line)
        findings.end = _RecordPosition(record.line, record.number, rows)
        if problems:
            findings.problems.append((findings.end, problems))
    return findings


def _row_problems(record: Record, row: dict[str, Any], sampled: Schema, checker: Checker) -> list[DataProblem]:
    problems = checker.problems(row, record.line, record.byte)
    oddity, name = sampled.oddity(row)
    if oddity and not any(problem.field == name for problem in problems):
        problems.append(DataProblem(record.line, "mixed_schemas", oddity, excerpt(row), byte=record.byte, field=name))
    return problems
