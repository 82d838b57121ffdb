"""Writes shortened rows as lines with an index of their offsets, so that any page of millions of rows is one read.

The child writes them beside the Parquet file; the web reads them, since they contain only shortened texts.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import short

_NUMBER = 8
_FLUSH = 4096


class ShortRowWriter:
    """Writes both files under temporary names until `close`; `discard` leaves nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines = _part(folder / files.SHOWN).open("wb", buffering=2**18)
        self._index = _part(folder / files.SHOWN_INDEX).open("wb")
        self._starts = array("Q")
        self._at = 0
        self._encode = msgspec.json.Encoder().encode

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row in canonical.SCHEMA, with its metadata as an object."""
        line = self._encode(short(row)) + b"\n"
        self._starts.append(self._at)
        self._at += self._lines.write(line)
        if len(self._starts) >= _FLUSH:
            self._flush()

    def close(self) -> None:
        self._flush()
        for file, name in ((self._lines, files.SHOWN), (self._index, files.SHOWN_INDEX)):
            _settle(file)
            _part(self._folder / name).rename(self._folder / name)

    def discard(self) -> None:
        for file, name in ((self._lines, files.SHOWN), (self._index, files.SHOWN_INDEX)):
            file.close()
            _part(self._folder / name).unlink(missing_ok=True)

    def _flush(self) -> None:
        self._index.write(_little(self._starts).tobytes())
        del self._starts[:]


def count(folder: Path) -> int:
    """Number of rows; 0 without the files."""
    try:
        return (folder / files.SHOWN_INDEX).stat().st_size // _NUMBER
    except FileNotFoundError:
        return 0


def page(folder: Path, start: int, limit: int) -> list[dict[str, Any]]:
    """Up to `limit` rows from the position `start` on, counted from 0; none past the end.

    Raises FileNotFoundError if the version has no rows.
    """
    with (folder / files.SHOWN_INDEX).open("rb") as index:
        index.seek(start * _NUMBER)
        starts = _little(array("Q", index.read((limit + 1) * _NUMBER)))
    if not starts:
        return []
    with (folder / files.SHOWN).open("rb") as lines:
        lines.seek(starts[0])
        text = lines.read(starts[-1] - starts[0]) if len(starts) > limit else lines.read()
    return [msgspec.json.decode(line) for line in text.splitlines()[:limit]]


def _part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


def _settle(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _little(numbers: array[int]) -> array[int]:
    if array("H", [1]).tobytes() != b"\x01\x00":
        numbers = array("Q", numbers)
        numbers.byteswap()
    return numbers
