"""The rows of a file of any kind, one after the other, each with its number, its line and what keeps it from use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from controlplane.datasets.reader import contents, formats, jsonlines, jsonlist
from controlplane.datasets.reader.formats import Format
from controlplane.datasets.reader.parquet import Parquet
from controlplane.datasets.reader.problems import Problem, excerpt
from controlplane.datasets.reader.tables import DelimitedTable
from controlplane.datasets.reader.unpacking import opened, taken


@dataclass(slots=True)
class Record:
    """`number`: of the row in the file, from 0, bad rows counted, blank lines not: a row_id. `line`: as in Problem.
    `row`: None when it can't be read; `problems` say why. `raw`: its bytes, of JSON files. `byte`: where it begins in
    the (uncompressed) file, -1: unknown."""

    number: int
    line: int
    row: dict[str, Any] | None
    problems: list[Problem] = field(default_factory=list)
    raw: bytes | None = None
    byte: int = -1


Told = Callable[[int], None]
"""Is given how many bytes of the file on disk were read so far, now and then."""


Remark = Callable[[Problem], None]
"""Is given what is wrong with the file's columns, which is no row's fault."""


def read(
    path: Path,
    format: Format,  # noqa: A002 -- what it is
    told: Told | None = None,
    remark: Remark | None = None,
) -> Iterator[Record]:
    """Every row. Raises FileProblem when the file as a whole turns out to be broken."""
    tell = told or (lambda at: None)
    if format.kind == formats.PARQUET:
        yield from _of_parquet(path, format, tell, remark or (lambda problem: None))
        return
    with opened(path, gzip=format.gzip) as file:
        if format.kind == formats.JSONL:
            yield from of_lines(file, tell)
        elif format.kind == formats.JSON:
            yield from _of_list(file, tell)
        else:
            yield from _of_table(file, format, tell)


def of_lines(file: BinaryIO, tell: Told) -> Iterator[Record]:
    number = line = 0
    for block in jsonlines.blocks(file):
        tell(taken(file))
        if block.too_long:
            line += 1
            yield Record(number, line, None, [jsonlines.too_long(line, block)])
            number += 1
            continue
        at = block.offset
        for raw in block.lines:
            line += 1
            if raw and not raw.isspace():
                row, problems = jsonlines.row_of(raw, line, at)
                yield Record(number, line, row, problems, raw, at)
                number += 1
            at += len(raw) + 1


def _of_list(file: BinaryIO, tell: Told) -> Iterator[Record]:
    for number, element in enumerate(jsonlist.elements(file)):
        tell(taken(file))
        line = number + 1
        if element.why:
            kind = "line_too_long" if "longer than" in element.why else "malformed_json"
            kind = "cut_off" if not element.raw else kind
            shown = excerpt(element.raw)
            yield Record(
                number, line, None, [Problem(line, kind, element.why, shown, byte=element.offset)], element.raw
            )
            continue
        if len(element.raw) > jsonlist.LONGEST:
            message = f"The row is {len(element.raw):,} bytes long; the longest that is read has {jsonlist.LONGEST:,}."
            problem = Problem(line, "line_too_long", message, excerpt(element.raw[:1000]), byte=element.offset)
            yield Record(number, line, None, [problem])
            continue
        row, problems = jsonlines.row_of(element.raw, line, element.offset)
        yield Record(number, line, row, problems, element.raw, element.offset)


def _of_table(file: BinaryIO, format: Format, tell: Told) -> Iterator[Record]:  # noqa: A002 -- what it is
    table = DelimitedTable(file, format.delimiter)
    for number, cells in enumerate(table):
        if not number % 1000:
            tell(taken(file))
        if cells.cells is None:
            yield Record(number, cells.line, None, [cells.problem] if cells.problem else [])
            continue
        row = dict(zip(table.columns, cells.cells, strict=True))
        problems = contents.problems(row, cells.line, "")
        yield Record(number, cells.line, None if problems else row, problems)


def _of_parquet(
    path: Path,
    format: Format,  # noqa: A002 -- what it is
    tell: Told,
    remark: Remark,
) -> Iterator[Record]:
    with closing(Parquet(path, gzip=format.gzip)) as parquet:
        size, rows = path.stat().st_size, max(1, parquet.row_count)
        for name, why in parquet.passed_over.items():
            remark(Problem(0, "passed_over_column", why, field=name))
        for batch in parquet.batches():
            tell(min(size, size * batch.first // rows))
            for place, row in enumerate(batch.rows):
                number = batch.first + place
                if row is None:
                    yield Record(number, number + 1, None, [batch.problems[place]])
                    continue
                problems = contents.problems(row, number + 1, "")
                yield Record(number, number + 1, None if problems else row, problems)
