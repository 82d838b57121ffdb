"""Pairs of numbers in an unnamed file, since they may not fit into memory. They are read in parts, by the first number.

Each block is sorted before it is written, and the starts of its parts are kept, so reading a part takes one read per
block.
"""

import io
import os
import tempfile
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]
Indexes = npt.NDArray[np.intp]

BLOCK = 2**18
"""Pairs in a block, which takes 4 MiB."""
PARTS = 256
_PAIR = 16


class SpilledPairs:
    """Pairs (key, value) in a file that vanishes when the process ends. Keys must be below 2**bits, and their top eight
    bits choose the part."""

    def __init__(self, folder: Path, *, bits: int = 64) -> None:
        self._folder = folder
        self._shift = np.uint64(max(0, bits - 8))
        self._file: io.FileIO | None = None
        self._blocks: list[tuple[int, array[int]]] = []  # (offset in the file, starts of the parts)
        self._end = 0
        self._unwritten: list[tuple[Numbers, Numbers]] = []
        self._unwritten_pairs = 0
        self._sizes = np.zeros(PARTS, np.int64)

    def add(self, keys: Numbers, values: Numbers) -> None:
        """Add pairs. The arrays must not be changed afterwards, since they are kept until a block is full."""
        self._unwritten.append((keys, values))
        self._unwritten_pairs += len(keys)
        if self._unwritten_pairs >= BLOCK:
            self._write()

    def parts(self, limit: int) -> Iterator[range]:
        """Yield ranges of successive parts with at most `limit` pairs each, where possible."""
        self._write()
        first, pairs = 0, 0
        for part in range(PARTS):
            size = int(self._sizes[part])
            if pairs and pairs + size > limit:
                yield range(first, part)
                first, pairs = part, 0
            pairs += size
        if pairs:
            yield range(first, PARTS)

    def read(self, parts: range) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield the pairs of these parts block by block, each block sorted by key."""
        self._write()
        if self._file is None:
            return
        for block_start, part_starts in self._blocks:
            first, end = part_starts[parts.start], part_starts[parts.stop]
            if first < end:
                raw = os.pread(self._file.fileno(), (end - first) * _PAIR, block_start + first * _PAIR)
                pairs = np.frombuffer(raw, np.uint64).reshape(-1, 2)
                yield pairs[:, 0], pairs[:, 1]

    def read_all(self, parts: range) -> tuple[Numbers, Numbers]:
        """Read the pairs of these parts as two unsorted arrays."""
        blocks = list(self.read(parts))
        if not blocks:
            return np.empty(0, np.uint64), np.empty(0, np.uint64)
        return np.concatenate([keys for keys, _ in blocks]), np.concatenate([values for _, values in blocks])

    def close(self) -> None:
        self._unwritten.clear()
        self._blocks.clear()
        if self._file is not None:
            self._file.close()

    def _write(self) -> None:
        if not self._unwritten_pairs:
            return
        if self._file is None:
            self._file = open_unnamed(self._folder)
        keys = np.concatenate([keys for keys, _ in self._unwritten])
        values = np.concatenate([values for _, values in self._unwritten])
        self._unwritten.clear()
        self._unwritten_pairs = 0
        order = np.argsort(keys)
        pairs = np.empty((len(keys), 2), np.uint64)
        pairs[:, 0] = keys[order]
        pairs[:, 1] = values[order]
        part_starts = np.searchsorted(pairs[:, 0] >> self._shift, np.arange(PARTS + 1, dtype=np.uint64))
        self._sizes += np.diff(part_starts)
        self._blocks.append((self._end, array("q", part_starts.tolist())))
        self._end += append(self._file, pairs.data.cast("B"))


def open_unnamed(folder: Path) -> io.FileIO:
    """Open a file without a name on the disk of `folder`; it vanishes when it is closed."""
    return tempfile.TemporaryFile(dir=folder, buffering=0)


def append(file: io.FileIO, data: memoryview) -> int:
    """Write all of `data`, and return its number of bytes. Raises OSError if the disk is full."""
    bytes_written = 0
    while bytes_written < len(data):
        bytes_written += file.write(data[bytes_written:])
    return bytes_written


def bits_for(number: int) -> int:
    """Return the `bits` to pass to SpilledPairs for keys up to `number`."""
    return max(8, number.bit_length())


def run_starts(keys: Numbers) -> Indexes:
    """Return the index at which each run of equal keys starts in sorted keys."""
    return np.flatnonzero(np.concatenate((np.ones(min(1, len(keys)), np.bool_), keys[1:] != keys[:-1])))


def grouped(keys: Numbers, values: Numbers) -> tuple[Numbers, Numbers, Indexes, Numbers]:
    """Sort pairs by key, and return (keys, values, starts of runs of equal keys, smallest value in each pair's run)."""
    order = np.argsort(keys)
    keys, values = keys[order], values[order]
    starts = run_starts(keys)
    firsts = np.repeat(np.minimum.reduceat(values, starts), np.diff(np.append(starts, len(keys))))
    return keys, values, starts, firsts


def in_order(pairs: SpilledPairs, limit: int) -> Iterator[tuple[int, int]]:
    """Yield all pairs in key order, with only one range of parts in memory; `limit` as for `parts`."""
    for parts in pairs.parts(limit):
        keys, values = pairs.read_all(parts)
        order = np.argsort(keys, kind="stable")
        yield from zip(keys[order].tolist(), values[order].tolist(), strict=True)
