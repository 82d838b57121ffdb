"""Ranks within a group, and the agreement of pairs between two scorings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAIRED = 128
"""The number of a group's completions that are compared pairwise."""
TOLERANCE = 1e-6
"""Totals closer than this count as equal: the run computed in single precision."""


@dataclass(frozen=True)
class PairCounts:
    """Pairs of a group's completions that have totals in both scorings."""

    all: int = 0
    turned: int = 0
    """The order is inverted."""
    untied: int = 0
    """Ties that are now broken."""
    made_equal: int = 0


def ranks(totals: Sequence[float | None]) -> list[int | None]:
    """Rank 1 is the highest; equal totals share the better rank."""
    ranked: list[int | None] = [None] * len(totals)
    ordered = sorted(((total, place) for place, total in enumerate(totals) if total is not None), reverse=True)
    for at, (total, place) in enumerate(ordered):
        before = ordered[at - 1] if at else None
        equal = before is not None and order(before[0], total) == 0
        ranked[place] = ranked[before[1]] if before and equal else at + 1
    return ranked


def pairs(before: Sequence[float | None], now: Sequence[float | None]) -> PairCounts:
    every = [(b, n) for b, n in zip(before, now, strict=True) if b is not None and n is not None]
    both = every[:PAIRED]
    total = turned = untied = made_equal = 0
    for place, (b, n) in enumerate(both):
        for other_b, other_n in both[place + 1 :]:
            was, is_now = order(b, other_b), order(n, other_n)
            total += 1
            turned += was * is_now < 0
            untied += was == 0 and is_now != 0
            made_equal += was != 0 and is_now == 0
    return PairCounts(total, turned, untied, made_equal)


def order(first: float, second: float) -> int:
    """1: the first is higher, -1: lower, 0: equal."""
    if abs(first - second) <= TOLERANCE * max(1.0, abs(first), abs(second)):
        return 0
    return 1 if first > second else -1
