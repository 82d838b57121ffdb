"""Mean and spread of a figure over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation and range over `n` runs; runs without the figure don't count."""

    n: int
    mean: float | None
    deviation: float | None
    """None for fewer than two runs."""
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread:
        known = [value for value in values if value is not None]
        if not known:
            return cls(0, None, None, None, None)
        deviation = stdev(known) if len(known) > 1 else None
        return cls(len(known), fmean(known), deviation, min(known), max(known))
