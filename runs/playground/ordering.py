"""What a group's totals say of its order: ranks, and how the pairs of two scorings go together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAIRED = 128
"""Of a group's completions, the first ones are compared with each other."""
SAME = 1e-6
"""Totals nearer than this count as equal: the run's own were computed in single precision."""


@dataclass(frozen=True)
class PairCounts:
    """Of completions of one group that both have a total before and now."""

    all: int = 0
    turned: int = 0
    """The better one is now the worse one."""
    told_apart: int = 0
    """They were equal and are no longer."""
    made_equal: int = 0


def ranks(totals: Sequence[float | None]) -> list[int | None]:
    """1 for the highest; equal ones share the better rank."""
    found: list[int | None] = [None] * len(totals)
    given = sorted(((one, place) for place, one in enumerate(totals) if one is not None), reverse=True)
    for at, (one, place) in enumerate(given):
        before = given[at - 1] if at else None
        equal = before is not None and order(before[0], one) == 0
        found[place] = found[before[1]] if before and equal else at + 1
    return found


def pairs(before: Sequence[float | None], now: Sequence[float | None]) -> PairCounts:
    every = [(b, n) for b, n in zip(before, now, strict=True) if b is not None and n is not None]
    both = every[:PAIRED]
    counted = turned = told_apart = made_equal = 0
    for place, (b, n) in enumerate(both):
        for other_b, other_n in both[place + 1 :]:
            was, is_now = order(b, other_b), order(n, other_n)
            counted += 1
            turned += was * is_now < 0
            told_apart += was == 0 and is_now != 0
            made_equal += was != 0 and is_now == 0
    return PairCounts(counted, turned, told_apart, made_equal)


def order(one: float, other: float) -> int:
    """1: the first is higher, -1: lower, 0: as high."""
    if abs(one - other) <= SAME * max(1.0, abs(one), abs(other)):
        return 0
    return 1 if one > other else -1
