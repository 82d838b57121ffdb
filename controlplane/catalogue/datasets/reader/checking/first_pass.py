"""The quick half of the check, which finds wrong types, missing fields, wrong roles and repeated prompts."""

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
from controlplane.catalogue.datasets.reader.columns.paths import leaves, value_of
from controlplane.catalogue.datasets.reader.columns.proposing import Recognised
from controlplane.catalogue.datasets.reader.columns.recognising_choices import numbered_by
from controlplane.catalogue.datasets.reader.columns.recognising_columns import recognise
from controlplane.catalogue.datasets.reader.limits import MAX_ROWS
from controlplane.catalogue.datasets.reader.parsing import formats, records, schema
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.parsing.schema import Counts, Schema
from controlplane.catalogue.datasets.reader.parsing.unpacking import check_rows
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

SAMPLE_ROWS = 500
SAMPLE_BYTES = 8 * 2**20
SAMPLE_RECORDS = 20_000
"""Maximum number of records, good and bad, to sample from."""
GROUP_ROWS, MAX_GROUPS = 8, 5
"""Rows of a group from which the schema is recognised, and maximum number of groups."""
MAX_PATHS = 200
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
    paths: list[str] = field(default_factory=list)
    """Dotted paths of the values inside columns."""
    sample: list[dict[str, Any]] = field(default_factory=list)
    recognised: Recognised | None = None
    mapping: ColumnMapping = field(default_factory=ColumnMapping)
    """The user's or the recognised mapping, with its transform's default columns."""


def run(
    source: RowSource,
    mapping: ColumnMapping | None,
    collector: Collector,
    progress: ProgressFile,
    result: FirstPassResult,
) -> None:
    """Run the first pass, filling in `result` and reporting problems to `collector`. Raises FileProblem if the file
    can't be read, or has no rows or too many."""
    result.sample = _sample(source, collector.add)
    row_schema = Schema(result.sample)
    result.columns = {name: Counter() for name in row_schema.counts}
    result.paths = _paths(result.sample)
    result.recognised = _recognise_sample(result.sample, row_schema, result.paths)
    result.mapping = _used_mapping(mapping, result.recognised.mapping, {*row_schema.counts, *result.paths})
    check = partial(_check_batch, row_schema=row_schema, checker=Checker(result.mapping))
    with (
        Duplicates(source.path.parent) as duplicates,
        Duplicates(source.path.parent) as answered,
        closing(processes.map_batches(source.batches, check, processes.useful_processes(source.path))) as batches,
    ):
        bytes_read = 0
        for batch in batches:
            if not batch.end.line:
                continue  # blank lines only
            if batch.end.number >= MAX_ROWS:
                raise FileProblem("too_many_rows", f"The file has more than {MAX_ROWS:,} rows.")
            check_rows(batch.end.number + 1, batch.bytes_read)
            position, bytes_read = _add(batch, result, collector, (duplicates, answered)), batch.bytes_read
            result.lines, result.rows, result.records = position.line, result.rows + position.rows, position.number + 1
            result.blank = position.line - result.records if source.format.kind == formats.JSONL else 0
            progress.report(bytes_read, result.rows)
            if collector.gave_up:
                break
        progress.report(bytes_read, result.rows, force=True)
        if not result.lines or not (result.rows or collector.errors):
            message = "The file has only blank lines." if result.lines else "The file has no rows."
            raise FileProblem("empty_file", message)
        if not collector.gave_up and result.mapping.has_prompt:
            _report_duplicates(duplicates, answered, result, collector)


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


def _paths(sample: list[dict[str, Any]]) -> list[str]:
    counts = Counter(path for row in sample for path, _ in leaves(row))
    return [path for path, _ in counts.most_common(MAX_PATHS)]


def _recognise_sample(sample: list[dict[str, Any]], row_schema: Schema, paths: list[str]) -> Recognised:
    """Return the proposal with the most common mapping among groups of the first rows, so that one bad row is
    harmless."""
    names = [*(row_schema.main or row_schema.counts), *paths]
    columns = [{"name": name, "share": _filled_share(sample, name)} for name in names]
    typical_rows = [row for row in sample[:200] if not row_schema.oddity(row)[0]] or sample
    end = min(len(typical_rows), MAX_GROUPS * GROUP_ROWS)
    groups = [typical_rows[start : start + GROUP_ROWS] for start in range(0, end, GROUP_ROWS)] or [[]]
    candidates = [recognise(group, columns) for group in groups]
    [(mapping, _)] = Counter(candidate.mapping for candidate in candidates).most_common(1)
    chosen = next(candidate for candidate in candidates if candidate.mapping == mapping)
    return replace(chosen, mapping=numbered_by(mapping, sample))


def _filled_share(sample: list[dict[str, Any]], name: str) -> float:
    values = [value.strip() if isinstance(value := value_of(row, name), str) else value for row in sample]
    return sum(value not in (None, "") for value in values) / max(1, len(sample))


def _used_mapping(chosen: ColumnMapping | None, recognised: ColumnMapping, names: set[str]) -> ColumnMapping:
    return resolved(chosen) if chosen else _without_missing_columns(resolved(recognised), names)


def _without_missing_columns(mapping: ColumnMapping, names: set[str]) -> ColumnMapping:
    """Drop columns that no sampled row has, since a wrong guess would make every row an error."""
    if not mapping.has_prompt or (mapping.prompt and mapping.prompt not in names):
        return ColumnMapping()
    blanks: dict[str, Any] = {name: "" for name in COLUMN_FIELDS if getattr(mapping, name) not in names}
    return replace(mapping, **blanks)


def _add(
    batch: "_FirstPassFindings", result: FirstPassResult, collector: Collector, repeated: tuple[Duplicates, Duplicates]
) -> "_RecordPosition":
    """Add a batch's findings, and return the position of its last record, or where the collector gave up."""
    for position, problems in batch.problems:
        for problem in problems:
            collector.add(problem)
        if collector.gave_up:
            return position
    schema.add(result.columns, batch.columns)
    for duplicates, keys in zip(repeated, (batch.keys, batch.answered), strict=True):
        duplicates.add_all(keys, batch.lines)
    return batch.end


def _report_duplicates(
    duplicates: Duplicates, answered: Duplicates, result: FirstPassResult, collector: Collector
) -> None:
    with_answer = answered.repeats()
    same, _ = next(with_answer, (0, 0))
    for line, first_line in duplicates.repeats():
        result.duplicates += 1
        while same and same < line:
            same, _ = next(with_answer, (0, 0))
        kind, end = ("exact_duplicate", "") if same == line else ("conflicting_answers", ", with another answer")
        if result.duplicates <= MAX_DUPLICATES:
            message = f"The prompt is the same as in line {first_line:,}{end}."
            collector.add(DataProblem(line, kind, message, field=result.mapping.prompt))


class _RecordPosition(NamedTuple):
    """Position of a record. `rows` is the number of readable rows in its batch, up to and including it."""

    line: int
    number: int
    rows: int


@dataclass
class _FirstPassFindings:
    """Findings in a batch of records: its last record `end`, the problems by record, and the hashed prompts and lines
    of the good rows. `bytes_read` is as in records.RecordBatch."""

    bytes_read: int
    end: _RecordPosition
    columns: Counts = field(default_factory=dict)
    problems: list[tuple[_RecordPosition, list[DataProblem]]] = field(default_factory=list)
    keys: "array[int]" = field(default_factory=partial(array, "q"))
    answered: "array[int]" = field(default_factory=partial(array, "q"))
    """Hashes of the prompts with their answers."""
    lines: "array[int]" = field(default_factory=partial(array, "q"))


def _check_batch(batch: records.RecordBatch, row_schema: Schema, checker: Checker) -> _FirstPassFindings:
    findings, rows = _FirstPassFindings(batch.bytes_read, _RecordPosition(0, -1, 0)), 0
    for record in batch.records():
        problems = list(record.problems)
        if record.row is not None:
            rows += 1
            schema.count(findings.columns, record.row)
            problems += _row_problems(record, record.row, row_schema, checker)
            if checker.has_prompt and all(KINDS[problem.kind].level != ERROR for problem in problems):
                key = checker.key(record.row)
                findings.keys.append(hash(key))
                findings.answered.append(hash((key, checker.answer_key(record.row))))
                findings.lines.append(record.line)
        findings.end = _RecordPosition(record.line, record.number, rows)
        if problems:
            findings.problems.append((findings.end, problems))
    return findings


def _row_problems(record: Record, row: dict[str, Any], row_schema: Schema, checker: Checker) -> list[DataProblem]:
    problems = checker.problems(row, record.line, record.byte)
    oddity, name = row_schema.oddity(row)
    if oddity and not any(problem.field == name for problem in problems):
        problems.append(DataProblem(record.line, "mixed_schemas", oddity, excerpt(row), byte=record.byte, field=name))
    return problems
