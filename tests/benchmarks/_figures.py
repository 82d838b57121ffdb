"""Percentiles as the benchmarks report them."""

from __future__ import annotations

import math


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least `share` of the values don't exceed; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
