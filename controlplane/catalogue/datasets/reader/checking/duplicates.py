"""Search for rows with the same key in bounded memory: hashes wait in unnamed files and are sorted in parts."""

from array import array
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path

import numpy as np

from controlplane.catalogue.datasets.reader.checking.spilling import BLOCK, SpilledPairs, bits_for, grouped, in_order
from controlplane.catalogue.datasets.reader.files import Closing

MAX_PAIRS_IN_MEMORY = 2**20
"""Maximum number of pairs compared in memory: about 50 MiB, including for sorting."""


class Duplicates(Closing):
    """Finder of repeated keys. `folder` holds unnamed temporary files, which vanish even after a crash.

    Keys are compared by a 64-bit hash with a random secret per process: among ten million rows, two different keys
    collide with a probability of 3 in a million, and nobody can prepare a collision.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes, self._lines = array("q"), array("q")
        self._firsts, self._repeated = SpilledPairs(folder), SpilledPairs(folder)
        self._last_line = 0

    def add(self, key: Hashable, line: int) -> None:
        """Add a row. Keys must all be strings, or all be tuples of strings; lines are at least 0."""
        self.add_all([hash(key)], [line])

    def add_all(self, hashes: Iterable[int], lines: Iterable[int]) -> None:
        """Add rows by the hashes of their keys, computed in this process or in a fork of it."""
        self._hashes.extend(hashes)
        self._lines.extend(lines)
        if len(self._lines) >= BLOCK:
            self._spill()

    def repeats(self) -> Iterator[tuple[int, int]]:
        """Yield (line, first line with the same key) for each repetition, in line order. Call once, after all rows."""
        self._spill()
        by_line = SpilledPairs(self._folder, bits=bits_for(self._last_line))
        try:
            for parts in self._firsts.parts(MAX_PAIRS_IN_MEMORY):
                self._compare(parts, by_line)
            yield from in_order(by_line, MAX_PAIRS_IN_MEMORY)
        finally:
            by_line.close()
            self.close()

    def close(self) -> None:
        self._firsts.close()
        self._repeated.close()

    def _spill(self) -> None:
        """Keep only the first line of each key in this block for the comparison, so that no part outgrows memory
        however often a key is repeated."""
        if not self._lines:
            return
        keys, lines = np.array(self._hashes, np.int64).view(np.uint64), np.array(self._lines, np.int64).view(np.uint64)
        del self._hashes[:], self._lines[:]
        self._last_line = max(self._last_line, int(lines.max()))
        keys, lines, starts, firsts = grouped(keys, lines)
        self._firsts.add(keys[starts], firsts[starts])
        is_repeat = lines != firsts
        if is_repeat.any():
            self._repeated.add(keys[is_repeat], lines[is_repeat])

    def _compare(self, parts: range, by_line: SpilledPairs) -> None:
        keys, lines, starts, firsts = grouped(*self._firsts.read_all(parts))
        is_repeat = lines != firsts
        by_line.add(lines[is_repeat], firsts[is_repeat])
        distinct_keys, first_lines = keys[starts], firsts[starts]
        for repeated_keys, lines in self._repeated.read(parts):
            by_line.add(lines.copy(), first_lines[np.searchsorted(distinct_keys, repeated_keys)])
