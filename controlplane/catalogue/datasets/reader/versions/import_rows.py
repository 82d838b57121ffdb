"""The verb `import`: maps a source to the rows of a version, or reports the problems that prevent it."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.report import OF_THE_CODE, Collector
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical_rows, resolved
from controlplane.catalogue.datasets.reader.excerpts import excerpt, visible
from controlplane.catalogue.datasets.reader.parsing import formats
from controlplane.catalogue.datasets.reader.parsing.records import Record, Rewrite, RowSource
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.versions.spill_by_split import SplitSpill
from controlplane.catalogue.datasets.reader.versions.splitting import Split
from controlplane.catalogue.datasets.reader.versions.writing import write_version

FROM_THE_CHECK = OF_THE_CODE | {"duplicate_keys"}
"""Kinds of errors that only the check detects."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """{"mapping": {...}, "split": {"share", "seed"}, "tokenizer": folder or None, "token_limit": n or None,
    "drop_broken": bool, "backend": as in check_file} -> MAPPED, which is also written.

    The check has run with this mapping. Rows that don't fit it are dropped if it says so ("leave_out"), rows that no
    mapping can use if `drop_broken`: people decide about both. ROWS and SHOWN exist afterwards only if the version is
    usable. Raises ValueError for an invalid split.
    """
    mapping = resolved(ColumnMapping.from_dict(arguments["mapping"]))
    split = Split.from_dict(arguments.get("split"))
    tokenizer = arguments.get("tokenizer")
    source = folder / files.SOURCE
    progress = ProgressFile(folder, "importing", source.stat().st_size)
    with ExitStack() as stack:
        spill = stack.enter_context(SplitSpill(folder))
        collector = stack.enter_context(Collector(folder / files.MAPPED_PROBLEMS))
        rewrite = stack.enter_context(row_function.opened(mapping, arguments.get("backend")))
        importing = stack.enter_context(closing(_Importing(folder, mapping, collector, rewrite)))
        file_error = importing.read(spill, progress)
        usable = bool(len(spill)) and not (file_error or collector.gave_up)
        usable = usable and (mapping.leave_out or not collector.unfit_rows)
        usable = usable and (mapping.leave_out or arguments.get("drop_broken", False) or not collector.broken_rows)
        mapped: dict[str, Any] = {"rows": 0, "validation_rows": 0, "sha256": "", "columns": [], "preview": []}
        mapped |= {"statistics": None, "hints": [], "dropped_duplicates": 0}
        if usable:
            rows = _with_progress(spill.rows(split, drop_duplicates=mapping.drop_duplicates), len(spill), folder)
            mapped |= write_version(
                folder,
                rows,
                chat=mapping.chat,
                tokenizer=Path(tokenizer) if tokenizer else None,
                token_limit=arguments.get("token_limit"),
                over_limit=importing.over_limit,
                repeated=lambda: (0, 0) if mapping.drop_duplicates else (spill.repeated, spill.repeated_alike),
            )
            mapped["dropped_duplicates"] = len(spill) - mapped["rows"]
        elif not (file_error or len(spill)):
            file_error = {"kind": "empty_file", "message": "No row fits this mapping.", "advice": ""}
        mapped |= {"usable": usable, "file_error": file_error, **collector.as_dict()}
    return files.write_answer(folder, files.MAPPED, mapped)


class _Importing:
    def __init__(self, folder: Path, mapping: ColumnMapping, collector: Collector, rewrite: Rewrite | None) -> None:
        self._folder = folder
        self._mapping = mapping
        self._rewrite = rewrite
        self._collector = collector
        self._check_errors = _CheckErrors(folder / files.PROBLEMS)

    def close(self) -> None:
        self._check_errors.close()

    def read(self, spill: SplitSpill, progress: ProgressFile) -> dict[str, str] | None:
        """Read the usable rows of the source into `spill`, and the problems of others into the collector. Returns the
        problem of the file as a whole, if any."""
        source = self._folder / files.SOURCE
        try:
            for record in RowSource(source, formats.detect(source), self._rewrite).read(progress):
                self._take(record, spill)
                if self._collector.gave_up:
                    return None
        except FileProblem as problem:
            return problem.as_dict()
        return None

    def over_limit(self, row: Mapping[str, Any], tokens: int) -> None:
        message = f"The prompt has {tokens:,} tokens, more than the limit."
        self._collector.add(DataProblem(row["line"], "too_many_tokens", message, _text(row["prompt"][-1]["content"])))

    def _take(self, record: Record, spill: SplitSpill) -> None:
        wrong = [problem for problem in record.problems if KINDS[problem.kind].level == ERROR]
        wrong += self._check_errors.errors(record.line)
        if record.row is None or wrong:
            for problem in wrong:
                self._collector.add(problem)
            return
        try:
            mapped_rows = canonical_rows(record.row, self._mapping, record.number)
        except RowProblem as problem:
            message = visible(str(problem))
            excerpt_text = _excerpt(record, problem.field)
            self._collector.add(
                DataProblem(record.line, problem.kind, message, excerpt_text, field=visible(problem.field))
            )
            return
        for place, mapped_row in enumerate(mapped_rows):
            spill.add({**mapped_row, "line": record.line}, with_previous=place > 0)


class _CheckErrors:
    """Errors that only the check's second pass detects, from the file of all problems. It is in row order, so only one
    line's errors are in memory."""

    def __init__(self, path: Path) -> None:
        self._problems = self._read(path)
        self._lines = groupby(self._problems, attrgetter("line"))
        self._line, self._of_it = 0, list[DataProblem]()

    def errors(self, line: int) -> list[DataProblem]:
        """The errors of a line; call with ascending lines."""
        while self._line < line:
            group = next(self._lines, None)
            self._line, self._of_it = (group[0], list(group[1])) if group else (sys.maxsize, [])
        return self._of_it if self._line == line else []

    def close(self) -> None:
        self._problems.close()

    def _read(self, path: Path) -> Generator[DataProblem, None, None]:
        if not path.exists():
            return
        decode = msgspec.json.Decoder(DataProblem).decode
        with path.open("rb") as lines:
            yield from (problem for problem in map(decode, lines) if problem.kind in FROM_THE_CHECK)


def _with_progress(rows: Iterator[dict[str, Any]], total: int, folder: Path) -> Iterator[dict[str, Any]]:
    """The rows; reports the progress of writing them."""
    progress = ProgressFile(folder, "writing", 0, total)
    for number, row in enumerate(rows, 1):
        progress.at(0, number)
        yield row


def _excerpt(record: Record, field: str) -> str:
    if record.raw is None:
        return _text(msgspec.json.encode(record.row).decode())
    return excerpt(record.raw, max(0, record.raw.find(msgspec.json.encode(field))) if field else 0)


def _text(text: str) -> str:
    return excerpt(text[:1000].encode("utf-8", "replace"))
