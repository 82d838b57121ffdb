"""Ranks within a group, and how far two scorings agree on the order of pairs."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

MAX_PAIRED = 128
TOLERANCE = 1e-6
"""Relative difference up to which totals count as equal, because the run computed in single precision."""


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs of a group's completions that have totals in both scorings."""

    all: int = 0
    turned: int = 0
    """Pairs whose order is reversed."""
    untied: int = 0
    """Pairs that were tied and no longer are."""
    made_equal: int = 0


def ranks(totals: Sequence[float | None]) -> list[int | None]:
    """Rank totals, where 1 is the highest. Equal totals share the better rank."""
    ranked: list[int | None] = [None] * len(totals)
    ordered = sorted(((total, index) for index, total in enumerate(totals) if total is not None), reverse=True)
    for at, (total, index) in enumerate(ordered):
        before = ordered[at - 1] if at else None
        ranked[index] = ranked[before[1]] if before and order(before[0], total) == 0 else at + 1
    return ranked


def pairs(before: Sequence[float | None], now: Sequence[float | None]) -> PairCounts:
    """Compare all pairs of completions that have totals in both scorings."""
    scored = [(b, n) for b, n in zip(before, now, strict=True) if b is not None and n is not None][:MAX_PAIRED]
    orders = [(order(b1, b2), order(n1, n2)) for (b1, n1), (b2, n2) in combinations(scored, 2)]
    return PairCounts(
        all=len(orders),
        turned=sum(was * is_now < 0 for was, is_now in orders),
        untied=sum(was == 0 and is_now != 0 for was, is_now in orders),
        made_equal=sum(was != 0 and is_now == 0 for was, is_now in orders),
    )


def order(first: float, second: float) -> int:
    """Compare two totals. Return 1 if the first is higher, -1 if it is lower, and 0 if they are equal."""
    if abs(first - second) <= TOLERANCE * max(1.0, abs(first), abs(second)):
        return 0
    return 1 if first > second else -1
