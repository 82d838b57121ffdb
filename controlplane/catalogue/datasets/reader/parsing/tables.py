"""Reading of CSV and TSV: the records of a table with their first lines; a broken record affects no other."""

import csv
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT, visible
from controlplane.catalogue.datasets.reader.limits import MAX_COLUMNS
from controlplane.catalogue.datasets.reader.parsing.unpacking import BOM
from controlplane.catalogue.datasets.reader.problems import DataProblem, FileProblem

MAX_LINE_BYTES = 2**21
MAX_FIELD_CHARACTERS = 2**20
MAX_REREAD_BYTES = 2**28
"""Maximum number of bytes that are read again because an unclosed quote had swallowed them."""

_NOT_UTF8 = re.compile("[\udc80-\udcff]")


@dataclass(slots=True)
class TableLine:
    """Physical line of the file at a byte offset; lines are numbered from 1."""

    number: int
    offset: int
    text: str
    is_truncated: bool = False
    """True if the line is longer than MAX_LINE_BYTES, so that the rest was skipped."""


@dataclass(slots=True)
class Cells:
    """Cells of a record, or the problem that prevented reading them."""

    line: int
    cells: list[str] | None
    problem: DataProblem | None = None


class DelimitedTable:
    """Table with the `columns` of its first record; iterating yields the other records."""

    def __init__(self, file: BinaryIO, delimiter: str) -> None:
        csv.field_size_limit(MAX_FIELD_CHARACTERS)
        self._lines = _TableLines(file)
        self._delimiter = delimiter
        self._reread = 0
        self.columns: list[str] = []
        self.columns = self._header()

    def __iter__(self) -> Iterator[Cells]:
        while (record := self._record()) is not None:
            yield record

    def _header(self) -> list[str]:
        while (record := self._record()) is not None:
            if record.cells is None:
                message = record.problem.message if record.problem else ""
                raise FileProblem("other_format", f"The line with the column names can't be read. {message}")
            if len(record.cells) > MAX_COLUMNS:
                raise FileProblem(
                    "too_many_columns", f"The table has {len(record.cells):,} columns; the limit is {MAX_COLUMNS}."
                )
            return _names(record.cells)
        raise FileProblem("empty_file", "The file has only blank lines.")

    def _record(self) -> Cells | None:
        while True:
            lines: list[TableLine] = []
            reader = csv.reader(self._record_lines(lines), delimiter=self._delimiter, strict=True)
            try:
                cells = next(reader, None)
            except csv.Error as error:
                return self._broken_cells(lines, str(error))
            if cells is None:
                return None
            if not cells or (not any(cells) and not lines[0].text.strip()):
                continue
            return self._checked_cells(lines, cells)

    def _record_lines(self, lines: list[TableLine]) -> Iterator[str]:
        for line in self._lines:
            lines.append(line)
            yield line.text

    def _checked_cells(self, lines: list[TableLine], cells: list[str]) -> Cells:
        first = lines[0]
        if any(line.is_truncated for line in lines):
            return self._broken_cells(lines, "")
        if self.columns and len(cells) != len(self.columns):
            self._read_again(lines)
            message = f"The row has {_fields(len(cells))}; the table has {_fields(len(self.columns))}."
            return self._bad(first, "field_count", message)
        for line in lines:
            if match := _NOT_UTF8.search(line.text):
                prefix = line.text[: match.start()].encode("utf-8", "surrogateescape")
                byte = line.offset + len(prefix)
                message = f"Byte 0x{ord(match[0]) - 0xDC00:02x} at byte {byte:,} is not UTF-8."
                return self._bad(first, "invalid_utf8", message, byte=byte, column=match.start() + 1)
        return Cells(first.number, cells)

    def _broken_cells(self, lines: list[TableLine], error: str) -> Cells:
        first = lines[0]
        self._read_again(lines)
        if first.is_truncated:
            return self._bad(first, "line_too_long", f"The line is longer than {MAX_LINE_BYTES:,} bytes.")
        if "unexpected end" in error or ("field limit" in error and len(lines) > 1):
            column = first.text.find('"') + 1
            return self._bad(first, "unclosed_quote", "A quote is opened but not closed.", column=column)
        if "field limit" in error:
            return self._bad(first, "field_too_long", f"A field is longer than {MAX_FIELD_CHARACTERS:,} characters.")
        if "expected after" in error:
            match = re.search(r'"(?![\s"' + re.escape(self._delimiter) + "])", first.text[1:])
            message = "Text follows a field's closing quote. Double the quotes inside fields."
            return self._bad(first, "unclosed_quote", message, column=match.start() + 2 if match else 0)
        return self._bad(first, "unclosed_quote", f"The row can't be split into fields: {error}.")

    def _read_again(self, lines: list[TableLine]) -> None:
        """Put back the lines that an unclosed quote joined to the first one, to be read again."""
        if len(lines) > 1:
            self._reread += sum(len(line.text) for line in lines)
            if self._reread > MAX_REREAD_BYTES:
                raise FileProblem(
                    "limits",
                    f"Quotes don't match in many lines, beginning with line {lines[0].number:,}.",
                    "Write the file with a CSV library, which doubles quotes inside fields.",
                )
            self._lines.read_again(lines[1:])

    def _bad(self, line: TableLine, kind: str, message: str, *, column: int = 0, byte: int = -1) -> Cells:
        start = max(0, column - MAX_EXCERPT // 2)
        text = visible(line.text[start : start + MAX_EXCERPT].rstrip("\r\n"))
        excerpt = ("…" if start else "") + text + ("…" if len(line.text) > start + MAX_EXCERPT else "")
        offset = line.offset if byte < 0 else byte
        return Cells(line.number, None, DataProblem(line.number, kind, message, excerpt, column=column, byte=offset))


class _TableLines:
    """Physical lines of the file, in which invalid UTF-8 bytes are decoded to lone surrogates."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._number = self._offset = 0
        self._returned: deque[TableLine] = deque()

    def __iter__(self) -> Iterator[TableLine]:
        return self

    def __next__(self) -> TableLine:
        if self._returned:
            return self._returned.popleft()
        raw = self._file.readline(MAX_LINE_BYTES)
        if not raw:
            raise StopIteration
        line = TableLine(self._number + 1, self._offset, "")
        self._offset += len(raw)
        if len(raw) >= MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while (piece := self._file.readline(MAX_LINE_BYTES)) and not piece.endswith(b"\n"):
                self._offset += len(piece)
            self._offset += len(piece)
            line.is_truncated = True
        self._number += 1
        if self._number == 1:
            raw = raw.removeprefix(BOM)
        line.text = raw.decode("utf-8", "surrogateescape")
        return line

    def read_again(self, lines: list[TableLine]) -> None:
        self._returned.extendleft(reversed(lines))


def _names(cells: list[str]) -> list[str]:
    names: list[str] = []
    for number, cell in enumerate(cells, 1):
        name = visible(cell.strip()) or f"column_{number}"
        while name in names:
            name += "_2"
        names.append(name)
    return names


def _fields(count: int) -> str:
    return f"{count:,} field" + ("" if count == 1 else "s")
