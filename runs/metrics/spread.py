"""Mean and spread of a figure over several runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over `n` runs; runs without the figure don't count."""

    n: int
    mean: float | None
    deviation: float | None
    """None for fewer than two runs."""

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread:
        known = [value for value in values if value is not None]
        return cls(len(known), fmean(known) if known else None, stdev(known) if len(known) > 1 else None)
