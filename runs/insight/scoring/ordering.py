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
    result: list[int | None] = [None] * len(totals)
    ordered = sorted(((total, index) for index, total in enumerate(totals) if total is not None), reverse=True)
    for position, (total, index) in enumerate(ordered):
        previous = ordered[position - 1] if position else None
        result[index] = result[previous[1]] if previous and order(previous[0], total) == 0 else position + 1
    return result


def pairs(before: Sequence[float | None], now: Sequence[float | None]) -> PairCounts:
    """Compare all pairs of completions that have totals in both scorings."""
    scored_pairs = [(old, new) for old, new in zip(before, now, strict=True) if old is not None and new is not None]
    pairs_of_totals = combinations(scored_pairs[:MAX_PAIRED], 2)
    orders = [(order(old, other_old), order(new, other_new)) for (old, new), (other_old, other_new) in pairs_of_totals]
    return PairCounts(
        all=len(orders),
        turned=sum(old_order * new_order < 0 for old_order, new_order in orders),
        untied=sum(old_order == 0 and new_order != 0 for old_order, new_order in orders),
        made_equal=sum(old_order != 0 and new_order == 0 for old_order, new_order in orders),
    )


def order(first: float, second: float) -> int:
    """Compare two totals. Return 1 if the first is higher, -1 if it is lower, and 0 if they are equal."""
    if abs(first - second) <= TOLERANCE * max(1.0, abs(first), abs(second)):
        return 0
    return 1 if first > second else -1
