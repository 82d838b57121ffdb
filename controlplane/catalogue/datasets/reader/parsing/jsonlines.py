"""Reading of JSON Lines: blocks of whole lines, the row of each line, and the problems of other lines.

The file isn't trusted: line lengths and nesting are limited, and every excerpt is shortened and cleaned.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from controlplane.catalogue.datasets.reader.excerpts import excerpt
from controlplane.catalogue.datasets.reader.parsing import contents
from controlplane.catalogue.datasets.reader.parsing.unpacking import BOM, MAX_LINE_BYTES
from controlplane.catalogue.datasets.reader.problems import DataProblem

BLOCK_BYTES = 2**18

_decode = msgspec.json.Decoder().decode
_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NUL_OR_LONG_NUMBER = re.compile(rb"\\u0000|\d{19}")
"""Pattern that matches every NUL and every integer beyond 64 bits, and possibly others."""
_TYPES = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


@dataclass(slots=True)
class Block:
    """Whole lines or, if `too_long`, the beginning of a single line that exceeds the limit with `size` bytes."""

    lines: list[bytes]
    offset: int
    size: int
    too_long: bool = False


def blocks(file: BinaryIO) -> Iterator[Block]:
    """Yield blocks of a file's lines without their line feeds, each of a few hundred kilobytes."""
    offset = 0
    while data := file.read(BLOCK_BYTES):
        if data[-1] != 10:
            data += file.readline(MAX_LINE_BYTES + 1)
        start, size = offset, len(data)
        offset += size
        if start == 0:
            data = data.removeprefix(BOM)
            start = size - len(data)
        long_line = b""
        if data[-1:] != b"\n" and len(data) - (line_start := data.rfind(b"\n") + 1) > MAX_LINE_BYTES:
            data, long_line = data[:line_start], data[line_start:]
        if data:
            lines = data.split(b"\n")
            if not lines[-1]:
                lines.pop()
            yield Block(lines, start, size - len(long_line))
        if long_line:
            skipped = _skip_line(file)
            offset += skipped
            yield Block([long_line], offset - skipped - len(long_line), len(long_line) + skipped, too_long=True)


def _skip_line(file: BinaryIO) -> int:
    skipped_bytes = 0
    while piece := file.readline(2**20):
        skipped_bytes += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped_bytes


def too_long_problem(line: int, unit: str, start: bytes, size: int, offset: int) -> DataProblem:
    message = f"The {unit} is {size:,} bytes long; the limit is {MAX_LINE_BYTES:,}."
    return DataProblem(line, "line_too_long", message, excerpt(start[:1000]), byte=offset)


def row_of(
    raw: bytes, line: int, offset: int, *, is_bare: bool = False
) -> tuple[dict[str, Any] | None, list[DataProblem]]:
    """Parse a JSON value at an offset of the file, and return (the row or None, its problems). `is_bare`: whether the
    file's rows are lists or strings."""
    try:
        value = _decode(raw)
    except _FAILURES as error:
        return None, [_diagnose(raw, line, offset, error)]
    value = contents.as_row(value) if is_bare else value
    if not isinstance(value, dict):
        json_type = _TYPES.get(type(value), "a number")
        message = f"The row is {json_type}; each row must be an object, {{…}}."
        return None, [DataProblem(line, "not_an_object", message, excerpt(raw), byte=offset)]
    issue = contents.problem(value, sound_values=_has_sound_values(raw))
    if issue is None:
        return value, []
    kind, message, field = issue
    index = max(raw.find(b"\\u0000"), 0) if kind == "nul" else 0
    column = index + 1 if index else 0
    return None, [
        DataProblem(line, kind, message, excerpt(raw, index), column=column, byte=offset + index, field=field)
    ]


def _has_sound_values(raw: bytes) -> bool:
    """Return whether the bytes alone rule out NULs, large integers and deep nesting, as they do in most rows."""
    return not _NUL_OR_LONG_NUMBER.search(raw) and raw.count(b"{") + raw.count(b"[") <= contents.MAX_LEVELS


def _diagnose(raw: bytes, line: int, offset: int, error: Exception) -> DataProblem:
    index, kind, message = _cause(raw, offset, error)
    column = len(raw[:index].decode("utf-8", "replace")) + 1
    return DataProblem(line, kind, message, excerpt(raw, index), column=column, byte=offset + index)


def _cause(raw: bytes, offset: int, error: Exception) -> tuple[int, str, str]:
    try:
        raw.decode()
    except UnicodeDecodeError as wrong:
        index = wrong.start
        return index, "invalid_utf8", f"Byte 0x{raw[index]:02x} at byte {offset + index:,} is not UTF-8."
    if isinstance(error, RecursionError):
        return 0, "nesting", f"Values are nested deeper than {contents.MAX_LEVELS} levels."
    if isinstance(error, msgspec.ValidationError):
        return 0, "number_range", "A number is too large to be represented."
    if surrogate := _LONE_SURROGATE.search(raw):
        return surrogate.start(), "lone_surrogate", "This escape is an unpaired surrogate, which is not a character."
    return _malformed(raw, offset, str(error))


def _malformed(raw: bytes, offset: int, error: str) -> tuple[int, str, str]:
    match = re.search(r"byte (\d+)", error)
    index = int(match[1]) if match else len(raw)
    rest = raw[index:].lstrip(b"-")
    if rest.startswith(b"\x00"):
        return index, "nul", f"There is a NUL byte at byte {offset + index:,} of the file."
    if rest.startswith((b"NaN", b"Infinity", b"nan", b"inf")) or raw[max(0, index - 1) :].startswith((b"NaN", b"-Inf")):
        return index, "not_a_number", "NaN and Infinity are not valid JSON."
    if "truncated" in error:
        return len(raw), "cut_off", "The row ends before its JSON is complete."
    if "trailing" in error:
        return (
            index,
            "malformed_json",
            f"Text follows the object at byte {offset + index:,}. Write one object per line.",
        )
    if "escape" in error:
        where = f"A backslash before byte {offset + index:,} of the file begins no escape of JSON."
        return index, "malformed_json", f"{where} Double the backslashes of LaTeX: \\\\frac."
    quotes = raw.lstrip()[1:2] == b"'" or rest[:1] == b"'"
    hint = " Use double quotes for names and strings." if quotes else ""
    return index, "malformed_json", f"Not valid JSON at byte {offset + index:,} of the file.{hint}"
