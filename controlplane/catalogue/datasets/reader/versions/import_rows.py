"""The verb `import`, which maps a source to the rows of a version, or reports the problems that prevent that."""

import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.report import CODE_KINDS, Collector
from controlplane.catalogue.datasets.reader.columns import row_function
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical_rows, resolved
from controlplane.catalogue.datasets.reader.excerpts import excerpt, visible
from controlplane.catalogue.datasets.reader.parsing import formats
from controlplane.catalogue.datasets.reader.parsing.records import Record, RowSource
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.versions.spill_by_split import SplitSpill
from controlplane.catalogue.datasets.reader.versions.splitting import Split
from controlplane.catalogue.datasets.reader.versions.writing import write_version

CHECK_ONLY_KINDS = CODE_KINDS | {"duplicate_keys"}
"""Kinds of errors that only the check's second pass detects."""


def run(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Import SOURCE: {"mapping": {...}, "split": {"share", "seed"}, "tokenizer": folder or None, "token_limit": n or
    None, "backend": as in check_file} -> MAPPED, which is also written.

    The check must have run with this mapping. Rows that no mapping can use are dropped, since people have agreed to
    that; rows that don't fit this mapping are dropped only if it has "leave_out". ROWS and SHOWN exist afterwards only
    if the version is usable. Raises ValueError for an invalid split.
    """
    mapping = resolved(ColumnMapping.from_dict(arguments["mapping"]))
    split = Split.from_dict(arguments.get("split"))
    tokenizer = arguments.get("tokenizer")
    mapped: dict[str, Any] = {"rows": 0, "validation_rows": 0, "sha256": "", "columns": [], "preview": []}
    mapped |= {"statistics": None, "hints": [], "dropped_duplicates": 0}
    with SplitSpill(folder) as spill, Collector(folder / files.MAPPED_PROBLEMS) as collector:
        file_error = _read(folder, mapping, arguments.get("backend"), collector, spill)
        usable = bool(len(spill)) and not (file_error or collector.gave_up)
        usable = usable and (mapping.leave_out or not collector.unfit_rows)
        if usable:
            mapped |= write_version(
                folder,
                _with_progress(spill.rows(split, drop_duplicates=mapping.drop_duplicates), len(spill), folder),
                collector,
                chat=mapping.chat,
                tokenizer=Path(tokenizer) if tokenizer else None,
                token_limit=arguments.get("token_limit"),
            )
            mapped["dropped_duplicates"] = len(spill) - mapped["rows"]
        elif not (file_error or len(spill)):
            file_error = {"kind": "empty_file", "message": "No row fits this mapping.", "advice": ""}
        mapped |= {"usable": usable, "file_error": file_error, **collector.as_dict()}
    return files.write_result(folder, files.MAPPED_FILE, mapped)


def _read(
    folder: Path, mapping: ColumnMapping, backend: str | None, collector: Collector, spill: SplitSpill
) -> dict[str, str] | None:
    """Read the usable rows of the source into `spill`, and the problems of other rows into `collector`. Return the
    problem of the file as a whole, or None."""
    source = folder / files.SOURCE
    progress = ProgressFile(folder, "importing", source.stat().st_size)
    with (
        row_function.open_function(mapping, backend) as rewrite,
        closing(_CheckErrors(folder / files.PROBLEMS)) as check_errors,
    ):
        try:
            for record in RowSource(source, formats.detect(source), rewrite).read(progress):
                rows, problems = _map_record(record, mapping, check_errors.errors(record.line))
                for problem in problems:
                    collector.add(problem)
                for number, row in enumerate(rows):
                    spill.add({**row, "line": record.line}, with_previous=number > 0)
                if collector.gave_up:
                    break
        except FileProblem as file_problem:
            return file_problem.as_dict()
    return None


def _map_record(
    record: Record, mapping: ColumnMapping, check_errors: list[DataProblem]
) -> tuple[list[dict[str, Any]], list[DataProblem]]:
    errors = [problem for problem in record.problems if KINDS[problem.kind].level == ERROR] + check_errors
    if record.row is None or errors:
        return [], errors
    try:
        return canonical_rows(record.row, mapping, record.number), []
    except RowProblem as problem:
        field = visible(problem.field)
        start = _excerpt(record, problem.field)
        return [], [DataProblem(record.line, problem.kind, visible(str(problem)), start, field=field)]


class _CheckErrors:
    """Errors that only the check's second pass detects, read from the file of all problems. The file is in row order,
    so only the errors of one line are in memory."""

    def __init__(self, path: Path) -> None:
        self._problems = self._read(path)
        self._lines = groupby(self._problems, attrgetter("line"))
        self._line, self._line_errors = 0, list[DataProblem]()

    def errors(self, line: int) -> list[DataProblem]:
        """Return the errors of a line; lines must ascend from call to call."""
        while self._line < line:
            group = next(self._lines, None)
            self._line, self._line_errors = (group[0], list(group[1])) if group else (sys.maxsize, [])
        return self._line_errors if self._line == line else []

    def close(self) -> None:
        self._problems.close()

    def _read(self, path: Path) -> Generator[DataProblem, None, None]:
        if not path.exists():
            return
        decode = msgspec.json.Decoder(DataProblem).decode
        with path.open("rb") as lines:
            yield from (problem for problem in map(decode, lines) if problem.kind in CHECK_ONLY_KINDS)


def _with_progress(rows: Iterator[dict[str, Any]], total: int, folder: Path) -> Iterator[dict[str, Any]]:
    progress = ProgressFile(folder, "writing", 0, total)
    for number, row in enumerate(rows, 1):
        progress.report(0, number)
        yield row


def _excerpt(record: Record, field: str) -> str:
    if record.raw is None:
        return excerpt(msgspec.json.encode(record.row)[:1000])
    return excerpt(record.raw, max(0, record.raw.find(msgspec.json.encode(field))) if field else 0)
