"""Reading of the rows of a file in any format, each with its number, its line and its problems."""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from operator import call
from pathlib import Path
from typing import Any, BinaryIO

from controlplane.catalogue.datasets.reader.excerpts import excerpt
from controlplane.catalogue.datasets.reader.parsing import contents, formats, jsonlines, jsonlist, jsonobject
from controlplane.catalogue.datasets.reader.parsing.formats import FileFormat
from controlplane.catalogue.datasets.reader.parsing.parquet import Parquet, RowBatch
from controlplane.catalogue.datasets.reader.parsing.tables import Cells, DelimitedTable
from controlplane.catalogue.datasets.reader.parsing.unpacking import bytes_read, open_content
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile

BATCH_BYTES = 2**18
"""Size of a batch of rows from a list or a table."""


@dataclass(slots=True)
class Record:
    """Row of the file. `number` counts from 0, including bad rows but not blank lines; `line` is as in DataProblem.
    `row` is None if it can't be read, and `problems` says why. `raw` is its JSON, if the file is JSON; `byte` is its
    offset in the uncompressed file, or -1 if unknown."""

    number: int
    line: int
    row: dict[str, Any] | None
    problems: list[DataProblem] = field(default_factory=list)
    raw: bytes | None = None
    byte: int = -1
    is_bare: bool = False
    """True if the row is a list or a string in the file."""


@dataclass(slots=True)
class RecordBatch:
    """Successive rows, parsed lazily. `bytes_read` is how much of the file on disk has been read."""

    bytes_read: int
    records: Callable[[], Iterable[Record]]


Remark = Callable[[DataProblem], None]
"""Function that receives problems of whole columns."""
Rewrite = Callable[[Iterable[Record]], Iterable[Record]]
"""Function that maps the records of a batch to as many records, in the same order."""


@dataclass(frozen=True)
class RowSource:
    """File of rows, with an optional function that rewrites them."""

    path: Path
    format: FileFormat
    rewrite: Rewrite | None = None

    def read(self, progress: ProgressFile | None = None, remark: Remark | None = None) -> Iterator[Record]:
        """Yield every row. Raises FileProblem if the file as a whole turns out to be broken."""
        for batch in self.batches(remark):
            for record in batch.records():
                if progress is not None:
                    progress.report(batch.bytes_read, record.number + 1)
                yield record

    def batches(self, remark: Remark | None = None) -> Iterator[RecordBatch]:
        """Yield the rows in batches, which are the same each time the file is read."""
        for batch in _batches(self.path, self.format, remark):
            yield RecordBatch(batch.bytes_read, partial(_rewritten, self.rewrite, batch)) if self.rewrite else batch


def _rewritten(rewrite: Rewrite, batch: RecordBatch) -> Iterable[Record]:
    return rewrite(batch.records())


def _batches(path: Path, file_format: FileFormat, remark: Remark | None) -> Iterator[RecordBatch]:
    if file_format.kind == formats.PARQUET:
        yield from _parquet_batches(path, file_format, remark or (lambda problem: None))
        return
    with open_content(path, gzip=file_format.gzip) as file:
        if file_format.kind == formats.JSONL:
            yield from _line_batches(file, is_bare=file_format.is_bare)
        elif file_format.kind == formats.JSON:
            yield from _in_batches(file, _json_rows(file, file_format))
        else:
            table = DelimitedTable(file, file_format.delimiter)
            cells = ((sum(map(len, c.cells or ())), partial(_cells_record, n, c, table)) for n, c in enumerate(table))
            yield from _in_batches(file, cells)


def _line_batches(file: BinaryIO, *, is_bare: bool) -> Iterator[RecordBatch]:
    number = line = 0
    for block in jsonlines.blocks(file):
        yield RecordBatch(bytes_read(file), partial(_block_records, block, number, line, is_bare))
        line += len(block.lines)
        number += len(block.lines)
        if not block.too_long:
            number -= block.lines.count(b"") + sum(map(bytes.isspace, block.lines))


def _block_records(block: jsonlines.Block, number: int, line: int, is_bare: bool) -> Iterator[Record]:
    if block.too_long:
        problem = jsonlines.too_long_problem(line + 1, "line", block.lines[0], block.size, block.offset)
        yield Record(number, line + 1, None, [problem])
        return
    offset = block.offset
    for raw in block.lines:
        line += 1
        if raw and not raw.isspace():
            row, problems = jsonlines.row_of(raw, line, offset, is_bare=is_bare)
            yield Record(number, line, row, problems, raw, offset, is_bare)
            number += 1
        offset += len(raw) + 1


def _json_rows(file: BinaryIO, file_format: FileFormat) -> "Iterator[SizedRow]":
    start = 0
    if file_format.layout == formats.OBJECT:
        content = formats.object_content(file)
        found = jsonobject.find(content)
        if found is None or not found.end:
            for number, row in enumerate(found.rows if found else ()):
                yield 1000, partial(_decoded_record, number, row)
            return
        start, file = found.start, io.BytesIO(content[found.start : found.end])
    for number, element in enumerate(jsonlist.elements(file, in_list=file_format.layout != formats.SERIES)):
        element.offset += start
        yield len(element.raw), partial(_element_record, number, element, file_format)


def _decoded_record(number: int, row: Any) -> Record:
    if isinstance(row, dict):
        return _validated(number, number + 1, row)
    problem = DataProblem(number + 1, "not_an_object", "The row isn't an object with the names of its columns.")
    return Record(number, number + 1, None, [problem])


IMAGE_WORDS = frozenset(("image", "images", "video", "videos", "audio", "audios"))
"""Names of columns that a prompt needs in addition to its text."""
SizedRow = tuple[int, Callable[[], Record]]
"""Pair of a row's approximate size in bytes and the function that parses it."""


def _in_batches(file: BinaryIO, rows: Iterator[SizedRow]) -> Iterator[RecordBatch]:
    """Yield rows in batches. If reading fails, the rows before the error are yielded before it is raised."""
    parsers: list[Callable[[], Record]] = []
    batch_size, problem = 0, None
    try:
        for row_size, parse in rows:
            parsers.append(parse)
            batch_size += row_size + 1
            if batch_size >= BATCH_BYTES:
                yield RecordBatch(bytes_read(file), partial(map, call, parsers))
                parsers, batch_size = [], 0
    except FileProblem as error:
        problem = error
    if parsers:
        yield RecordBatch(bytes_read(file), partial(map, call, parsers))
    if problem:
        raise problem


def _element_record(number: int, element: jsonlist.Element, file_format: FileFormat) -> Record:
    line = number + 1
    if element.problem:
        kind = "line_too_long" if "longer than" in element.problem else "malformed_json"
        kind = "cut_off" if not element.raw else kind
        problem = DataProblem(line, kind, element.problem, excerpt(element.raw), byte=element.offset)
        return Record(number, line, None, [problem], element.raw)
    if len(element.raw) > jsonlist.MAX_ELEMENT_BYTES:
        problem = jsonlines.too_long_problem(line, "row", element.raw, len(element.raw), element.offset)
        return Record(number, line, None, [problem])
    row, problems = jsonlines.row_of(element.raw, line, element.offset, is_bare=file_format.is_bare)
    if row and file_format.layout == formats.OBJECT:
        row = jsonobject.unwrapped(row)
    return Record(number, line, row, problems, element.raw, element.offset, file_format.is_bare)


def _cells_record(number: int, cells: Cells, table: DelimitedTable) -> Record:
    if cells.cells is None:
        return Record(number, cells.line, None, [cells.problem] if cells.problem else [])
    return _validated(number, cells.line, dict(zip(table.columns, cells.cells, strict=True)))


def _parquet_batches(path: Path, file_format: FileFormat, remark: Remark) -> Iterator[RecordBatch]:
    with closing(Parquet(path, gzip=file_format.gzip)) as parquet:
        size, rows = path.stat().st_size, max(1, parquet.row_count)
        for name in IMAGE_WORDS.intersection(parquet.skipped):
            raise FileProblem("images", f"The column “{name}” has images, sounds or videos, which aren't trained on.")
        for name, reason in parquet.skipped.items():
            remark(DataProblem(0, "passed_over_column", reason, field=name))
        for batch in parquet.batches():
            yield RecordBatch(min(size, size * batch.first // rows), partial(_batch_records, batch))


def _batch_records(batch: RowBatch) -> Iterator[Record]:
    for index, row in enumerate(batch.rows):
        number = batch.first + index
        if row is None:
            yield Record(number, number + 1, None, [batch.problems[index]])
        else:
            yield _validated(number, number + 1, row)


def _validated(number: int, line: int, row: dict[str, Any]) -> Record:
    if issue := contents.problem(row):
        kind, message, field_name = issue
        return Record(number, line, None, [DataProblem(line, kind, message, field=field_name)])
    return Record(number, line, row)
