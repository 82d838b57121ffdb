"""Prompts that nearly repeat an earlier one: MinHash over word pairs, LSH bands for candidates, bounded memory.

A batch of texts is split into words and hashed with numpy at once; numbers count as words. Text without spaces between
words (Chinese, Japanese, Korean) is split into characters.
"""

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from controlplane.catalogue.datasets.reader.checking.duplicates import PAIRS_COMPARED
from controlplane.catalogue.datasets.reader.checking.spilling import (
    Indexes,
    Numbers,
    SpilledPairs,
    append,
    bits_for,
    grouped,
    in_order,
    runs,
    unnamed,
)
from controlplane.catalogue.datasets.reader.excerpts import EXCERPT
from controlplane.catalogue.datasets.reader.files import Closing

THRESHOLD = 0.8
"""The minimum estimated share of word pairs in common."""
FEW_WORDS = 5
"""Prompts with fewer words, not counting numbers, are not compared: “3 + 4 =” doesn't repeat “3 + 5 =”."""
LONGEST = 20_000
"""Characters of a text that are examined."""
BANDS, ROWS = 12, 5
"""LSH bands and rows per band: 99 % of the pairs with similarity 0.8 share a band, and 30 % with 0.5."""
COMPARED = 4096
"""Lines whose candidates are compared at once."""

_HASHES = BANDS * ROWS
_chance = np.random.default_rng(20_220)  # any number: the same prompts match on every machine
_BYTES = _chance.integers(1, 2**64, 256, dtype=np.uint64)
_BASE = np.uint64(0xD1342543DE82EF95)
_INVERSE = np.uint64(pow(0xD1342543DE82EF95, -1, 2**64))
_FACTORS = (_chance.integers(1, 2**32, _HASHES, dtype=np.uint64) | np.uint64(1)).astype(np.uint32)
_OFFSETS = _chance.integers(1, 2**32, _HASHES, dtype=np.uint64).astype(np.uint32)
_BAND_FACTORS = _chance.integers(1, 2**64, (BANDS, ROWS), dtype=np.uint64) | np.uint64(1)
_PAIR_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_MIXERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))

_IS_DIGIT = np.zeros(256, np.bool_)
_IS_DIGIT[ord("0") : ord("9") + 1] = True
_DIGITS = _IS_DIGIT.astype(np.int64)
_IS_WORD = _IS_DIGIT.copy()
_IS_WORD[[*range(ord("a"), ord("z") + 1), ord("_"), *range(0x80, 0x100)]] = True
_STARTS_ALONE = np.zeros(256, np.bool_)
_STARTS_ALONE[0xE3:0xEE] = True  # the first byte of most characters of Chinese, Japanese and Korean in UTF-8

_RECORD = np.dtype(
    [
        *((name, np.uint64) for name in ("line", "exact", "plain", "masked", "words", "begins", "excerpt")),
        ("low", np.uint16, _HASHES),
    ]
)
Records = npt.NDArray[np.void]


class Near(NamedTuple):
    """A prompt that resembles an earlier one, at the line `like`."""

    line: int
    like: int
    similarity: float
    """Estimated, from 0 to 1."""
    numbers_only: bool
    """Only numbers (and case and punctuation) differ."""
    same_words: bool
    """Only case and punctuation differ."""
    excerpt: str = ""
    """The beginning of the prompt."""


class NearDuplicates(Closing):
    """A finder of near-duplicates. `folder` holds unnamed temporary files, which vanish even after a crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records, self._excerpts = unnamed(folder), unnamed(folder)
        self._excerpts_end = 0
        self._count = 0
        self._bands = SpilledPairs(folder)

    def add(self, signatures: "Signatures") -> None:
        """Add prompts, whose signatures were computed in this process or in a fork of it; lines must ascend."""
        rows = signatures.records
        rows["begins"] += np.uint64(self._excerpts_end)
        self._excerpts_end += append(self._excerpts, memoryview(signatures.excerpts))
        append(self._records, memoryview(rows.tobytes()))
        ordinals = np.arange(self._count, self._count + len(rows), dtype=np.uint64)
        self._count += len(rows)
        low = rows["low"].astype(np.uint64).reshape(-1, BANDS, ROWS)
        keys = _mixed((low * _BAND_FACTORS).sum(axis=2, dtype=np.uint64) + np.arange(BANDS, dtype=np.uint64))
        self._bands.add(keys.ravel(), np.repeat(ordinals, BANDS))
        self._bands.add(rows["masked"].copy(), ordinals)

    def matches(self) -> Iterator[Near]:
        """Find the prompts similar but not equal to an earlier one, in line order. Call once.

        Each is compared with the first prompt of each of its buckets, so the work grows only linearly.
        """
        # Pairs (row, first row of a shared bucket); rows are counted from 0.
        candidates = SpilledPairs(self._folder, bits=bits_for(self._count))
        try:
            for parts in self._bands.parts(PAIRS_COMPARED):
                _, rows, _, firsts = grouped(*self._bands.read_all(parts))
                later = rows != firsts
                candidates.add(rows[later], firsts[later])
            self._bands.close()
            yield from self._weighed(candidates)
        finally:
            candidates.close()
            self.close()

    def close(self) -> None:
        self._bands.close()
        self._records.close()
        self._excerpts.close()

    def _weighed(self, candidates: SpilledPairs) -> Iterator[Near]:
        batch: dict[int, set[int]] = {}
        for row, first in in_order(candidates, PAIRS_COMPARED):
            if row not in batch and len(batch) >= COMPARED:
                yield from self._compare(batch)
                batch = {}
            batch.setdefault(row, set()).add(first)
        yield from self._compare(batch)

    def _compare(self, batch: dict[int, set[int]]) -> Iterator[Near]:
        later = np.array([row for row, firsts in batch.items() for _ in firsts], np.intp)
        earlier = np.array([first for firsts in batch.values() for first in sorted(firsts)], np.intp)
        if not len(later):
            return
        later_records, earlier_records = self._read(later), self._read(earlier)
        similarity = (later_records["low"] == earlier_records["low"]).sum(axis=1, dtype=np.intp) / _HASHES
        same_words = later_records["plain"] == earlier_records["plain"]
        numbers_only = (later_records["masked"] == earlier_records["masked"]) & ~same_words
        weight = np.where(
            later_records["exact"] == earlier_records["exact"], -1.0, similarity + numbers_only + 2 * same_words
        )
        for at in _best(later, weight):
            if weight[at] >= THRESHOLD:
                begins = os.pread(
                    self._excerpts.fileno(), int(later_records["excerpt"][at]), int(later_records["begins"][at])
                )
                yield Near(
                    int(later_records["line"][at]),
                    int(earlier_records["line"][at]),
                    round(float(similarity[at]), 2),
                    bool(numbers_only[at]),
                    bool(same_words[at]),
                    begins.decode(),
                )

    def _read(self, rows: Indexes) -> Records:
        distinct, back = np.unique(rows, return_inverse=True)
        size, file = _RECORD.itemsize, self._records.fileno()
        raw = b"".join(os.pread(file, size, int(row) * size) for row in distinct)
        return np.frombuffer(raw, _RECORD)[back]


class Signatures(NamedTuple):
    """Signatures of the prompts that have enough words to be compared."""

    records: Records
    excerpts: bytes
    """The beginning of each prompt, one after the other."""


def signatures(texts: list[str], lines: list[int]) -> Signatures:
    """Compute the signatures of texts, whose lines ascend."""
    rows = records([text[:LONGEST] for text in texts])
    rows["line"] = lines
    rows["exact"] = np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)
    comparable = np.flatnonzero(rows["words"] >= FEW_WORDS)
    begins = [_beginning(texts[index]).encode("utf-8", "replace") for index in comparable.tolist()]
    rows = rows[comparable]
    rows["excerpt"] = ends = np.fromiter(map(len, begins), np.uint64, len(begins))
    rows["begins"] = np.cumsum(ends) - ends
    return Signatures(rows, b"".join(begins))


def _beginning(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]}…"


def records(texts: list[str]) -> Records:
    """Compute a _RECORD per text, without its position and the hash of the whole text.

    `plain` is equal for texts that differ only in case and punctuation, `masked` also for those that differ in numbers;
    `words` counts words other than numbers.
    """
    result = np.zeros(len(texts), _RECORD)
    hashes, numbers, owners = _hashed_words(*_bytes(texts))
    if not len(hashes):
        return result
    result["words"] = np.bincount(owners, ~numbers, len(texts)).astype(np.uint64)
    begins = np.searchsorted(owners, np.arange(len(texts)))
    before = np.concatenate((np.zeros(1, np.uint64), hashes[:-1]))
    before[begins[begins < len(hashes)]] = 0  # for a text's first word
    pairs = _mixed(before * _PAIR_FACTOR + hashes)
    # Sums over a text's words, weighted by position, so that a moved word matters.
    weight = _mixed((np.arange(len(hashes), dtype=np.uint64) - begins[owners].astype(np.uint64)) + np.uint64(1))
    filled = np.flatnonzero(np.bincount(owners, minlength=len(texts)))
    result["plain"][filled] = np.add.reduceat(_mixed(hashes ^ weight), begins[filled])
    masked = np.where(numbers, np.uint64(7), hashes)
    result["masked"][filled] = np.add.reduceat(_mixed(masked ^ weight), begins[filled])
    result["low"][filled] = _smallest(pairs, begins[filled])
    return result


def _bytes(texts: list[str]) -> tuple[npt.NDArray[np.uint8], Indexes]:
    """Encode all texts in lower case as UTF-8, each followed by a space; also return their start positions."""
    encoded = [text.lower().encode("utf-8", "replace") for text in texts]
    lengths = np.fromiter(map(len, encoded), np.intp, len(encoded)) + 1
    starts = np.cumsum(lengths) - lengths
    return np.frombuffer(b" ".join(encoded) + b" ", np.uint8), starts


def _hashed_words(data: npt.NDArray[np.uint8], starts: Indexes) -> tuple[Numbers, npt.NDArray[np.bool_], Indexes]:
    """Return (hash, whether it is a number, index of its text) of each word, as arrays."""
    inside, alone = np.take(_IS_WORD, data), np.take(_STARTS_ALONE, data)
    cut = np.empty(len(data), np.bool_)  # whether no word continues from the previous byte
    cut[0] = True
    np.logical_or(~inside[:-1], alone[1:], out=cut[1:])
    first = np.flatnonzero(inside & cut)
    last = np.flatnonzero(inside[:-1] & (cut[1:] | ~inside[1:]))  # there is always a space after the last byte
    if not len(first):
        return np.empty(0, np.uint64), np.empty(0, np.bool_), np.empty(0, np.intp)
    ups, downs = _powers(1 << len(data).bit_length())
    sums = np.cumsum(np.take(_BYTES, data) * ups[: len(data)])
    hashes = _mixed((sums[last] - sums[first] + _BYTES[data[first]] * ups[first]) * downs[first])
    digits = np.cumsum(np.take(_DIGITS, data))
    numbers = digits[last] - digits[first] + _IS_DIGIT[data[first]] == last - first + 1
    return hashes, numbers, np.searchsorted(starts, first, side="right") - 1


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Numbers, Numbers]:
    """Compute powers of an odd number and of its inverse modulo 2^64: multiplying a sum by the inverse power of a
    word's position removes the dependence on that position."""
    up, down = np.full(count, _BASE), np.full(count, _INVERSE)
    up[0] = down[0] = 1
    return np.multiply.accumulate(up), np.multiply.accumulate(down)


def _smallest(pairs: Numbers, begins: Indexes) -> npt.NDArray[np.uint16]:
    """Compute the signature of each text: the smallest value of each hash function, lower half."""
    short = (pairs >> np.uint64(32)).astype(np.uint32)
    signature = np.empty((len(begins), _HASHES), np.uint16)
    for number, (factor, offset) in enumerate(zip(_FACTORS, _OFFSETS, strict=True)):
        signature[:, number] = np.minimum.reduceat(short * factor + offset, begins) & np.uint32(0xFFFF)
    return signature


def _mixed(numbers: Numbers) -> Numbers:
    """Mix each number so that every bit depends on all others (the finalizer of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIXERS[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIXERS[1]
    return numbers ^ (numbers >> np.uint64(31))


def _best(rows: Indexes, weight: npt.NDArray[np.float64]) -> Iterator[int]:
    """Yield the index of the greatest weight of each row, in row order; the first of equal ones."""
    order = np.lexsort((np.arange(len(rows)), -weight, rows))
    yield from order[runs(rows[order].astype(np.uint64))].tolist()
