"""What a number of words, turns or the like is worth: all of it up to a target, nothing from a maximum on."""

from __future__ import annotations

from typing import Protocol


class ScoreBounds(Protocol):
    """Parameters that hold them."""

    @property
    def minimum(self) -> int: ...

    @property
    def target(self) -> int: ...

    @property
    def maximum(self) -> int: ...


def bounds_problem(bounds: ScoreBounds) -> str | None:
    if bounds.minimum > bounds.target:
        return "minimum: must not be above target"
    return None if bounds.target < bounds.maximum else "maximum: must be above target"


def within(number: int, bounds: ScoreBounds) -> float:
    """1 from the minimum up to the target, falling evenly to 0 for none and at the maximum."""
    if number < bounds.minimum:
        return number / bounds.minimum
    if number <= bounds.target:
        return 1.0
    return max(0.0, (bounds.maximum - number) / (bounds.maximum - bounds.target))
