"""Splitting of a JSON list of rows, or of objects in succession, into its elements, without loading all of it.

Elements are delimited by brackets alone, skipping strings; each is then read like a line of JSON Lines. Where brackets
don't match, parsing resumes after the next `}, {`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from controlplane.catalogue.datasets.reader.parsing.unpacking import BOM, MAX_LINE_BYTES
from controlplane.catalogue.datasets.reader.problems import FileProblem

BLOCK_BYTES = 2**18
MAX_ELEMENT_BYTES = MAX_LINE_BYTES
SHORT_LOOK_AHEAD_BYTES = 2**16
"""Number of bytes searched for an element's end, once more than MAX_BROKEN elements had none."""
MAX_BROKEN = 50

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_NEXT_ROW = re.compile(rb"\}\s*,?\s*(?=\{)|\}\s*(?=\]\s*\Z)")
_SCALAR = re.compile(rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,\]\[{}"\s]++)')
_CLOSING_BRACKETS = {b"[": b"]", b"{": b"}"}
_SPACE = re.compile(rb"[\s,]*+")
_MEMBER = re.compile(rb'[\s,]*+("[^"\\]*+(?:\\.[^"\\]*+)*+")\s*+:\s*+', re.DOTALL)


class _Mismatch(Exception):
    """Signal that a closing bracket doesn't match the opening one."""


@dataclass(slots=True)
class Element:
    """Bytes of an element at an offset of the file. `problem` is a sentence if the element's brackets don't match."""

    raw: bytes
    offset: int
    problem: str = ""


def elements(file: BinaryIO, *, in_list: bool = True) -> Iterator[Element]:
    """Yield the elements of the list in a file, or what follows each other without a list. Raises FileProblem if a list
    is expected and the file doesn't begin with one."""
    yield from _Splitter(file, in_list=in_list).elements()


def members(content: bytes, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield (name, start, end) of each value of the object at `start`, up to the first one that doesn't end."""
    position = content.find(b"{", start) + 1
    while match := _MEMBER.match(content, position):
        position = value_end(content, match.end())
        if position < 0:
            return
        yield match[1][1:-1].decode("utf-8", "replace"), match.end(), position


def value_end(content: bytes, start: int) -> int:
    """Return the end of the JSON value at `start`, or -1 if its brackets or quotes don't close."""
    if content[start : start + 1] not in (b"[", b"{"):
        scalar = _SCALAR.match(content, start)
        return scalar.end() if scalar else -1
    try:
        return _closing_end(content, start) or -1
    except _Mismatch:
        return -1


def _closing_end(content: bytes, start: int) -> int | None:
    """Return the end of the list or object at `start`, or None if it doesn't end. Raises _Mismatch if it can't end."""
    closing_brackets: list[bytes] = []
    for token in _TOKEN.finditer(content, start):
        bracket = token.group()[:1]
        if bracket in b"[{":
            closing_brackets.append(_CLOSING_BRACKETS[bracket])
        elif bracket in b"]}":
            if closing_brackets.pop() != bracket:
                raise _Mismatch
            if not closing_brackets:
                return token.end()
    return None


class _Splitter:
    def __init__(self, file: BinaryIO, *, in_list: bool) -> None:
        self._file = file
        self._in_list = in_list
        self._buffer = b""
        self._position = 0  # in the buffer
        self._offset = 0  # of the buffer in the file
        self._ended = False
        self._broken_count = 0

    def elements(self) -> Iterator[Element]:
        self._read_more(BLOCK_BYTES)
        self._position = self._start()
        while True:
            self._skip_space()
            if self._position >= len(self._buffer):
                if self._in_list:
                    yield Element(b"", self._file_offset, "The file ends before the list is closed with “]”.")
                return
            if self._in_list and self._buffer[self._position] == 0x5D:
                self._position += 1
                yield from self._trailing_text()
                return
            yield self._element()

    def _start(self) -> int:
        if not self._in_list:
            return len(BOM) if self._buffer.startswith(BOM) else 0
        start = self._buffer.find(b"[", 0, 4096)
        if self._buffer[:start].removeprefix(BOM).strip():
            raise FileProblem("other_format", "The file doesn't begin with a list.")
        return start + 1

    @property
    def _file_offset(self) -> int:
        return self._offset + self._position

    def _read_more(self, size: int) -> bool:
        """Read more bytes, dropping consumed ones from the buffer, and return whether there were any."""
        if self._ended:
            return False
        piece = self._file.read(size)
        if not piece:
            self._ended = True
            return False
        self._buffer = self._buffer[self._position :] + piece
        self._offset += self._position
        self._position = 0
        return True

    def _skip_space(self) -> None:
        while True:
            space = _SPACE.match(self._buffer, self._position)
            self._position = space.end() if space else self._position
            if self._position < len(self._buffer) or not self._read_more(BLOCK_BYTES):
                return

    def _element(self) -> Element:
        start, offset = self._position, self._file_offset
        max_bytes = SHORT_LOOK_AHEAD_BYTES if self._broken_count > MAX_BROKEN else MAX_ELEMENT_BYTES
        while True:
            try:
                end = self._element_end()
            except _Mismatch:
                break
            if end is not None:
                raw = self._buffer[self._position : end]
                self._position = end
                return Element(raw, offset)
            buffered_bytes = len(self._buffer) - self._position
            if buffered_bytes > max_bytes or not self._read_more(max(BLOCK_BYTES, buffered_bytes)):
                break
            start = self._position
        self._broken_count += 1
        return self._skip_broken(start, offset)

    def _element_end(self) -> int | None:
        if self._buffer[self._position] not in b"[{":
            scalar = _SCALAR.match(self._buffer, self._position)
            end = scalar.end() if scalar else self._position + 1
            if end >= len(self._buffer) and not self._ended:
                return None
            return end
        return _closing_end(self._buffer, self._position)

    def _skip_broken(self, start: int, offset: int) -> Element:
        """Return an element without an end, and resume at the apparent start of the next row, if any."""
        too_long = len(self._buffer) - start > MAX_ELEMENT_BYTES
        reason = (
            f"The row is longer than {MAX_ELEMENT_BYTES:,} bytes, or its brackets don't close."
            if too_long
            else "The row's brackets or quotes don't close."
        )
        next_row = _NEXT_ROW.search(self._buffer, start + 1)
        while next_row is None:
            head = self._buffer[start : start + 1000]
            # The last bytes may be the first half of a match.
            self._position = max(start, len(self._buffer) - 64)
            if not self._read_more(BLOCK_BYTES * 4):
                self._position = len(self._buffer)
                return Element(head, offset, reason)
            start = 0
            next_row = _NEXT_ROW.search(self._buffer)
            if next_row is not None:
                self._position = next_row.end()
                return Element(head, offset, reason)
        raw = self._buffer[start : next_row.start() + 1]
        self._position = next_row.end()
        return Element(raw[:1000] if len(raw) > MAX_ELEMENT_BYTES else raw, offset, reason)

    def _trailing_text(self) -> Iterator[Element]:
        while True:
            rest = self._buffer[self._position :].strip()
            if rest:
                yield Element(rest[:1000], self._file_offset, "Text follows the “]” that closes the list.")
                return
            self._position = len(self._buffer)
            if not self._read_more(BLOCK_BYTES):
                return
