"""The slow half of the check, which finds duplicate keys, broken code, unusable tests and near-duplicates."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

from controlplane.catalogue.datasets.reader.checking import processes, row_code, texts, whole_file
from controlplane.catalogue.datasets.reader.checking.near import NearDuplicates, NearMatch, Signatures, signatures
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical, prompt_text, resolved
from controlplane.catalogue.datasets.reader.excerpts import excerpt, visible
from controlplane.catalogue.datasets.reader.parsing import records, repeated_keys
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.problems import DataProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile


def run(source: RowSource, mapping: ColumnMapping, collector: Collector, progress: ProgressFile) -> int:
    """Check every readable row again, and return the number of prompts that nearly repeat an earlier one.

    Temporary files are unnamed, in the file's folder. Raises FileProblem as RowSource.read does.
    """
    check = partial(_check_batch, mapping=resolved(mapping))
    bytes_read = rows = near = 0
    facts = Counter[int]()
    with NearDuplicates(source.path.parent) as prompts:
        results = processes.map_batches(source.batches, check, processes.useful_processes(source.path))
        with closing(results):
            for findings in results:
                for problem in findings.problems:
                    collector.add(problem)
                prompts.add(findings.prompts)
                facts += findings.facts
                bytes_read, rows = findings.bytes_read, findings.rows or rows
                progress.report(bytes_read, rows)
                if collector.gave_up:
                    break
        progress.report(bytes_read, rows, force=True)
        for problem in whole_file.problems(facts, resolved(mapping)):
            collector.add(problem)
        for near_duplicate in prompts.matches():
            near += 1
            collector.add(near_problem(near_duplicate))
    return near


class _SecondPassFindings(NamedTuple):
    """Results for a batch. `bytes_read` is as in records.RecordBatch; `rows` counts the file's rows so far; `facts` are
    the numbers of rows by fact of whole_file."""

    bytes_read: int
    rows: int
    problems: list[DataProblem]
    prompts: Signatures
    facts: Counter[int]


def _check_batch(batch: records.RecordBatch, mapping: ColumnMapping) -> _SecondPassFindings:
    rows, problems = 0, list[DataProblem]()
    prompts, lines = list[str](), list[int]()
    facts = Counter[int]()
    for record in batch.records():
        rows = record.number + 1
        if record.row is None:
            continue
        problems += _repeated_keys(record, record.row)
        try:
            fields = canonical(record.row, mapping, record.number)
        except RowProblem:
            fields = None  # the first pass has reported why
        problems += row_code.problems(record.row, fields, mapping, record.line)
        if fields is not None:
            problems += texts.problems(fields, record.row, mapping, record.line)
            problems += texts.left_out(record.row, mapping, record.line)
            facts.update(whole_file.facts(fields, record.row, mapping))
            prompts.append(prompt_text(fields["prompt"]))
            lines.append(record.line)
    return _SecondPassFindings(batch.bytes_read, rows, problems, signatures(prompts, lines), facts)


def _repeated_keys(record: Record, row: dict[str, Any]) -> Iterator[DataProblem]:
    raw = record.raw
    if raw is None or not repeated_keys.may_have_any(raw, row):
        return
    for name, column in repeated_keys.repeated(raw):
        message = f"The key “{visible(name[:80])}” occurs twice in this row, or in an object in it."
        yield DataProblem(record.line, "duplicate_keys", message, excerpt(raw, column), column, field=visible(name))


def near_problem(near: NearMatch) -> DataProblem:
    if near.numbers_only:
        message = f"The same as line {near.earlier_line:,} except for numbers."
    elif near.same_words:
        message = f"The same words as in line {near.earlier_line:,}; only case, spaces or punctuation differ."
    else:
        message = f"{near.similarity:.0%} of its word pairs are also in line {near.earlier_line:,}."
    return DataProblem(near.line, "near_duplicate", message, visible(near.excerpt))
