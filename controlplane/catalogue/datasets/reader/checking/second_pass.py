"""The slow half of the check: duplicate keys, broken code, tests that ask too much, near-duplicates, long prompts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.catalogue.datasets.reader.checking import processes, row_code
from controlplane.catalogue.datasets.reader.checking.near import Near, NearDuplicates, Signatures, signatures
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.conversations import Message
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import (
    ColumnMapping,
    canonical,
    prompt_text,
    resolved,
)
from controlplane.catalogue.datasets.reader.excerpts import EXCERPT, excerpt, visible
from controlplane.catalogue.datasets.reader.parsing import records, repeated_keys
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.problems import Problem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.prompts.chat import ChatRenderer
from controlplane.catalogue.datasets.reader.prompts.chat_templates import TemplateProblem


def run(
    source: RowSource,
    mapping: ColumnMapping,
    collector: Collector,
    tokenizer: Path | None,
    token_limit: int | None,
    progress: ProgressFile,
) -> int:
    """Look at every readable row once more; how many prompts nearly repeat an earlier one.

    Temporary files are unnamed ones in the file's folder. Raises FileProblem as RowSource.batches does.
    """
    renderer = _renderer(tokenizer, collector) if token_limit else None
    checks = _MappedRowChecks(resolved(mapping), renderer, token_limit or 0)
    at = rows = near = 0
    with NearDuplicates(source.path.parent) as prompts:
        results = processes.looked_at(source.batches, checks.of, processes.useful(source.path))
        with closing(results):
            for found in results:
                for problem in found.problems:
                    collector.add(problem)
                prompts.add_all(found.prompts)
                at, rows = found.at, found.rows or rows
                progress.at(at, rows)
                if collector.gave_up:
                    break
        progress.at(at, rows, now=True)
        for like in prompts.found():
            near += 1
            collector.add(near_problem(like))
    return near


class _SecondPassFindings(NamedTuple):
    """The results for a batch of rows. `at`: see records.RecordBatch; `rows`: the file's rows up to the batch's end."""

    at: int
    rows: int
    problems: list[Problem]
    prompts: Signatures


class _MappedRowChecks:
    """`renderer` None: no tokens are counted."""

    def __init__(self, mapping: ColumnMapping, renderer: ChatRenderer | None, limit: int) -> None:
        self._mapping = mapping
        self._renderer, self._limit = renderer, limit

    def of(self, batch: records.RecordBatch) -> _SecondPassFindings:
        rows, problems = 0, list[Problem]()
        prompts, lines = list[list[Message]](), list[int]()
        for record in batch.records():
            rows = record.number + 1
            if record.row is None:
                continue
            problems += _repeated_keys(record, record.row)
            try:
                fields = canonical(record.row, self._mapping, record.number)
            except RowProblem:
                fields = None  # the first pass has reported why
            problems += row_code.problems(record.row, fields, self._mapping, record.line)
            if fields is not None:
                prompts.append(fields["prompt"])
                lines.append(record.line)
        problems += self._over_limit(prompts, lines)
        return _SecondPassFindings(batch.at, rows, problems, signatures(list(map(prompt_text, prompts)), lines))

    def _over_limit(self, prompts: list[list[Message]], lines: list[int]) -> Iterator[Problem]:
        if self._renderer is None:
            return
        counts = self._renderer.prompt_counts(prompts, chat=self._mapping.chat, over=self._limit)
        for prompt, line, tokens in zip(prompts, lines, counts, strict=True):
            if tokens is not None and tokens > self._limit:
                message = f"The prompt has {tokens:,} tokens; the limit is {self._limit:,}."
                start = excerpt(prompt[-1]["content"][: 2 * EXCERPT].encode("utf-8", "replace"))
                yield Problem(line, "too_many_tokens", message, start)


def _repeated_keys(record: Record, row: dict[str, Any]) -> Iterator[Problem]:
    raw = record.raw
    if raw is None or not repeated_keys.may_have_any(raw, row):
        return
    for name, column in repeated_keys.found(raw):
        message = f"“{visible(name[:80])}” stands twice in this row, or in an object in it."
        yield Problem(record.line, "duplicate_keys", message, excerpt(raw, column), column, field=visible(name))


def _renderer(folder: Path | None, collector: Collector) -> ChatRenderer | None:
    """None, with a problem for the collector, if it can't count tokens."""
    if folder is None:
        return None
    try:
        renderer = ChatRenderer(folder)
    except TemplateProblem as problem:
        collector.add(Problem(0, "not_counted", str(problem)))
        return None
    if renderer.counts_tokens:
        return renderer
    why = "The chosen model has no tokenizer.json (sentencepiece's own files are not read)."
    collector.add(Problem(0, "not_counted", why))
    return None


def near_problem(found: Near) -> Problem:
    if found.numbers_only:
        message = f"The same as line {found.like:,} but for its numbers."
    elif found.same_words:
        message = f"The same words as in line {found.like:,}: case, spaces or punctuation differ."
    else:
        message = f"{found.similarity:.0%} of it, by pairs of words, is in line {found.like:,} too."
    return Problem(found.line, "near_duplicate", message, visible(found.excerpt))
