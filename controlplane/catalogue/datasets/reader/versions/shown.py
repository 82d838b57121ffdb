"""Shortened rows as lines, with an index of their offsets, so that any page of millions of rows takes one read.

The child writes them in addition to the Parquet file, and the web server reads them.
"""

from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import short
from controlplane.catalogue.datasets.reader.files import Closing, DraftFile

_NUMBER_BYTES = 8
_FLUSH_ROWS = 4096


class ShortRowWriter(Closing):
    """Writer of the rows and their index, which exist only after `finish`."""

    def __init__(self, folder: Path) -> None:
        self._lines, self._index = DraftFile(folder / files.SHOWN_ROWS_FILE), DraftFile(folder / files.SHOWN_INDEX)
        self._starts = array("Q")
        self._offset = 0
        self._encode = msgspec.json.Encoder().encode

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row in canonical.SCHEMA, with its metadata as an object."""
        line = self._encode(short(row)) + b"\n"
        self._starts.append(self._offset)
        self._offset += self._lines.file.write(line)
        if len(self._starts) >= _FLUSH_ROWS:
            self._flush()

    def finish(self) -> None:
        """Sync both files to disk, and put them in place."""
        self._flush()
        self._lines.finish()
        self._index.finish()

    def close(self) -> None:
        self._lines.close()
        self._index.close()

    def _flush(self) -> None:
        self._index.file.write(_little_endian(self._starts).tobytes())
        del self._starts[:]


def page(folder: Path, start: int, limit: int) -> list[dict[str, Any]]:
    """Return up to `limit` rows from the position `start` (counted from 0) on; [] past the end.

    Raises FileNotFoundError if the version has no rows.
    """
    with (folder / files.SHOWN_INDEX).open("rb") as index_file:
        index_file.seek(start * _NUMBER_BYTES)
        starts = _little_endian(array("Q", index_file.read((limit + 1) * _NUMBER_BYTES)))
    if not starts:
        return []
    with (folder / files.SHOWN_ROWS_FILE).open("rb") as row_file:
        row_file.seek(starts[0])
        content = row_file.read(starts[-1] - starts[0]) if len(starts) > limit else row_file.read()
    return [msgspec.json.decode(line) for line in content.splitlines()[:limit]]


def _little_endian(numbers: "array[int]") -> "array[int]":
    if array("H", [1]).tobytes() != b"\x01\x00":
        numbers = array("Q", numbers)
        numbers.byteswap()
    return numbers
