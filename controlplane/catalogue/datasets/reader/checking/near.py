"""Search for prompts that nearly repeat an earlier one, in bounded memory: MinHash of word pairs, and LSH bands.

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

from controlplane.catalogue.datasets.reader.checking.duplicates import MAX_PAIRS_IN_MEMORY
from controlplane.catalogue.datasets.reader.checking.spilling import (
    Indexes,
    Numbers,
    SpilledPairs,
    append,
    bits_for,
    grouped,
    in_order,
    open_unnamed,
    run_starts,
)
from controlplane.catalogue.datasets.reader.excerpts import MAX_EXCERPT
from controlplane.catalogue.datasets.reader.files import Closing

MIN_SIMILARITY = 0.8
"""Minimum estimated share of word pairs that similar prompts have in common."""
MIN_WORDS = 5
"""Minimum number of words other than numbers in prompts to compare: “3 + 4 =” doesn't repeat “3 + 5 =”."""
MAX_CHARACTERS = 20_000
"""Number of leading characters of a prompt that are compared."""
BANDS, ROWS = 12, 5
"""LSH bands and rows per band: 99 % of the pairs with a similarity of 0.8 share a band, and 32 % of those with 0.5."""
BATCH_LINES = 4096
"""Number of prompts whose candidates are compared at a time."""

_HASHES = BANDS * ROWS
_rng = np.random.default_rng(20_220)  # a fixed seed, so that the same prompts match on every machine
_BYTES = _rng.integers(1, 2**64, 256, dtype=np.uint64)
_BASE = np.uint64(0xD1342543DE82EF95)
_INVERSE_MULTIPLIER = np.uint64(pow(0xD1342543DE82EF95, -1, 2**64))
_FACTORS = (_rng.integers(1, 2**32, _HASHES, dtype=np.uint64) | np.uint64(1)).astype(np.uint32)
_OFFSETS = _rng.integers(1, 2**32, _HASHES, dtype=np.uint64).astype(np.uint32)
_BAND_FACTORS = _rng.integers(1, 2**64, (BANDS, ROWS), dtype=np.uint64) | np.uint64(1)
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


class NearMatch(NamedTuple):
    """Prompt at `line` that resembles the one at `earlier_line`."""

    line: int
    earlier_line: int
    similarity: float
    """Estimated Jaccard similarity of the word pairs, from 0 to 1."""
    numbers_only: bool
    """True if only numbers (and case and punctuation) differ."""
    same_words: bool
    """True if only case and punctuation differ."""
    excerpt: str = ""
    """Beginning of the prompt at `line`."""


class NearDuplicates(Closing):
    """Finder of near-duplicates. `folder` holds unnamed temporary files, which vanish even after a crash."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._records, self._excerpts = open_unnamed(folder), open_unnamed(folder)
        self._excerpts_end = 0
        self._count = 0
        self._bands = SpilledPairs(folder)

    def add(self, signatures: "Signatures") -> None:
        """Add prompts by their signatures, computed in this process or in a fork of it; lines must ascend."""
        rows = signatures.records
        rows["begins"] += np.uint64(self._excerpts_end)
        self._excerpts_end += append(self._excerpts, memoryview(signatures.excerpts))
        append(self._records, memoryview(rows.tobytes()))
        ordinals = np.arange(self._count, self._count + len(rows), dtype=np.uint64)
        self._count += len(rows)
        low = rows["low"].astype(np.uint64).reshape(-1, BANDS, ROWS)
        keys = _mix((low * _BAND_FACTORS).sum(axis=2, dtype=np.uint64) + np.arange(BANDS, dtype=np.uint64))
        self._bands.add(keys.ravel(), np.repeat(ordinals, BANDS))
        self._bands.add(rows["masked"].copy(), ordinals)

    def matches(self) -> Iterator[NearMatch]:
        """Yield the prompts that are similar but not equal to an earlier one, in line order. Call once.

        Each prompt is compared with the first prompt in each of its buckets, so the work grows only linearly.
        """
        # Pairs (row, first row of a shared bucket); rows are counted from 0.
        candidates = SpilledPairs(self._folder, bits=bits_for(self._count))
        try:
            for parts in self._bands.parts(MAX_PAIRS_IN_MEMORY):
                _, rows, _, firsts = grouped(*self._bands.read_all(parts))
                is_repeat = rows != firsts
                candidates.add(rows[is_repeat], firsts[is_repeat])
            self._bands.close()
            yield from self._compare_in_batches(candidates)
        finally:
            candidates.close()
            self.close()

    def close(self) -> None:
        self._bands.close()
        self._records.close()
        self._excerpts.close()

    def _compare_in_batches(self, candidates: SpilledPairs) -> Iterator[NearMatch]:
        batch: dict[int, set[int]] = {}
        for row, first in in_order(candidates, MAX_PAIRS_IN_MEMORY):
            if row not in batch and len(batch) >= BATCH_LINES:
                yield from self._compare(batch)
                batch = {}
            batch.setdefault(row, set()).add(first)
        yield from self._compare(batch)

    def _compare(self, batch: dict[int, set[int]]) -> Iterator[NearMatch]:
        later = np.array([row for row, firsts in batch.items() for _ in firsts], np.intp)
        earlier = np.array([first for firsts in batch.values() for first in sorted(firsts)], np.intp)
        if not len(later):
            return
        later_records, earlier_records = self._read(later), self._read(earlier)
        similarities = (later_records["low"] == earlier_records["low"]).sum(axis=1, dtype=np.intp) / _HASHES
        same_words = later_records["plain"] == earlier_records["plain"]
        numbers_only = (later_records["masked"] == earlier_records["masked"]) & ~same_words
        weights = np.where(
            later_records["exact"] == earlier_records["exact"], -1.0, similarities + numbers_only + 2 * same_words
        )
        for index in _best(later, weights):
            if weights[index] >= MIN_SIMILARITY:
                size, offset = int(later_records["excerpt"][index]), int(later_records["begins"][index])
                yield NearMatch(
                    int(later_records["line"][index]),
                    int(earlier_records["line"][index]),
                    round(float(similarities[index]), 2),
                    bool(numbers_only[index]),
                    bool(same_words[index]),
                    os.pread(self._excerpts.fileno(), size, offset).decode(),
                )

    def _read(self, rows: Indexes) -> Records:
        distinct_rows, inverse = np.unique(rows, return_inverse=True)
        size, file = _RECORD.itemsize, self._records.fileno()
        raw = b"".join(os.pread(file, size, int(row) * size) for row in distinct_rows)
        return np.frombuffer(raw, _RECORD)[inverse]


class Signatures(NamedTuple):
    """Signatures of those prompts that have enough words to be compared."""

    records: Records
    excerpts: bytes
    """Concatenated beginnings of the prompts."""


def signatures(texts: list[str], lines: list[int]) -> Signatures:
    """Compute the signatures of prompts, whose lines ascend."""
    rows = records([text[:MAX_CHARACTERS] for text in texts])
    rows["line"] = lines
    rows["exact"] = np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)
    comparable = np.flatnonzero(rows["words"] >= MIN_WORDS)
    beginnings = [_beginning(texts[index]).encode("utf-8", "replace") for index in comparable.tolist()]
    rows = rows[comparable]
    rows["excerpt"] = lengths = np.fromiter(map(len, beginnings), np.uint64, len(beginnings))
    rows["begins"] = np.cumsum(lengths) - lengths
    return Signatures(rows, b"".join(beginnings))


def _beginning(text: str) -> str:
    return text if len(text) <= MAX_EXCERPT else f"{text[:MAX_EXCERPT]}…"


def records(texts: list[str]) -> Records:
    """Compute a _RECORD for each text, without its line and the hash of the whole text.

    `plain` is equal for texts that differ only in case and punctuation, and `masked` also for those that differ in
    numbers. `words` counts the words that aren't numbers.
    """
    result = np.zeros(len(texts), _RECORD)
    hashes, is_number, text_indexes = _hashed_words(*_bytes(texts))
    if not len(hashes):
        return result
    result["words"] = np.bincount(text_indexes, ~is_number, len(texts)).astype(np.uint64)
    starts = np.searchsorted(text_indexes, np.arange(len(texts)))
    previous = np.concatenate((np.zeros(1, np.uint64), hashes[:-1]))
    previous[starts[starts < len(hashes)]] = 0  # for a text's first word
    pairs = _mix(previous * _PAIR_FACTOR + hashes)
    # Sums over a text's words, weighted by position, so that a moved word matters.
    weight = _mix((np.arange(len(hashes), dtype=np.uint64) - starts[text_indexes].astype(np.uint64)) + np.uint64(1))
    nonempty = np.flatnonzero(np.bincount(text_indexes, minlength=len(texts)))
    result["plain"][nonempty] = np.add.reduceat(_mix(hashes ^ weight), starts[nonempty])
    masked = np.where(is_number, np.uint64(7), hashes)
    result["masked"][nonempty] = np.add.reduceat(_mix(masked ^ weight), starts[nonempty])
    result["low"][nonempty] = _minhashes(pairs, starts[nonempty])
    return result


def _bytes(texts: list[str]) -> tuple[npt.NDArray[np.uint8], Indexes]:
    """Return all texts in lower case as UTF-8, each followed by a space, and their start positions."""
    encoded = [text.lower().encode("utf-8", "replace") for text in texts]
    lengths = np.fromiter(map(len, encoded), np.intp, len(encoded)) + 1
    starts = np.cumsum(lengths) - lengths
    return np.frombuffer(b" ".join(encoded) + b" ", np.uint8), starts


def _hashed_words(data: npt.NDArray[np.uint8], starts: Indexes) -> tuple[Numbers, npt.NDArray[np.bool_], Indexes]:
    """Return arrays of each word's hash, whether it is a number, and the index of its text."""
    is_word, starts_alone = np.take(_IS_WORD, data), np.take(_STARTS_ALONE, data)
    is_start = np.empty(len(data), np.bool_)  # whether no word continues from the previous byte
    is_start[0] = True
    np.logical_or(~is_word[:-1], starts_alone[1:], out=is_start[1:])
    first = np.flatnonzero(is_word & is_start)
    last = np.flatnonzero(is_word[:-1] & (is_start[1:] | ~is_word[1:]))  # there is always a space after the last byte
    if not len(first):
        return np.empty(0, np.uint64), np.empty(0, np.bool_), np.empty(0, np.intp)
    powers, inverse_powers = _powers(1 << len(data).bit_length())
    sums = np.cumsum(np.take(_BYTES, data) * powers[: len(data)])
    hashes = _mix((sums[last] - sums[first] + _BYTES[data[first]] * powers[first]) * inverse_powers[first])
    digits = np.cumsum(np.take(_DIGITS, data))
    is_number = digits[last] - digits[first] + _IS_DIGIT[data[first]] == last - first + 1
    return hashes, is_number, np.searchsorted(starts, first, side="right") - 1


@lru_cache(maxsize=1)
def _powers(count: int) -> tuple[Numbers, Numbers]:
    """Return the powers of an odd number, and of its inverse modulo 2^64. Multiplying a word's sum by the inverse power
    at its position removes the dependence on that position."""
    up, down = np.full(count, _BASE), np.full(count, _INVERSE_MULTIPLIER)
    up[0] = down[0] = 1
    return np.multiply.accumulate(up), np.multiply.accumulate(down)


def _minhashes(pairs: Numbers, starts: Indexes) -> npt.NDArray[np.uint16]:
    """Return the signature of each text: the lower halves of the smallest values of each hash function."""
    high_halves = (pairs >> np.uint64(32)).astype(np.uint32)
    signature = np.empty((len(starts), _HASHES), np.uint16)
    for index, (factor, offset) in enumerate(zip(_FACTORS, _OFFSETS, strict=True)):
        signature[:, index] = np.minimum.reduceat(high_halves * factor + offset, starts) & np.uint32(0xFFFF)
    return signature


def _mix(numbers: Numbers) -> Numbers:
    """Mix each number so that every bit depends on all others (the finalizer of splitmix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIXERS[0]
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIXERS[1]
    return numbers ^ (numbers >> np.uint64(31))


def _best(rows: Indexes, weight: npt.NDArray[np.float64]) -> Iterator[int]:
    """Yield the index of each row's greatest weight (in a tie, the first one), in row order."""
    order = np.lexsort((np.arange(len(rows)), -weight, rows))
    yield from order[run_starts(rows[order].astype(np.uint64))].tolist()
