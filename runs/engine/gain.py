"""The gain of a run's reward: the mean of its last rewards minus that of its first, and its significance."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import hypot, sqrt
from statistics import fmean, stdev

_LARGEST = sys.float_info.max
GAIN_OVER = 10
"""Steps at each end whose mean rewards are compared."""


def last(ends: Sequence[float]) -> float | None:
    """The mean of the last ten rewards, of a short run of all.

    `ends`: Run.reward_ends.
    """
    return mean(ends[-GAIN_OVER:]) if ends else None


def gain(ends: Sequence[float]) -> float | None:
    """The mean of the last ten rewards minus that of the first ten; of a short run, of its halves.

    `ends`: Run.reward_ends.
    """
    if len(ends) < GAIN_OVER + 2:
        return None
    first, final = _compared(ends)
    return mean(final) - mean(first)


def counts(ends: Sequence[float]) -> bool:
    """Whether the gain is more than chance: beyond two standard errors of the difference of the two means (Welch's).

    `ends`: Run.reward_ends.
    """
    if gain(ends) is None:
        return False
    scale = max(map(abs, ends)) or 1.0  # the squares of the largest rewards would be infinite
    first, final = ([value / scale for value in part] for part in _compared(ends))
    error = hypot(stdev(first) / sqrt(len(first)), stdev(final) / sqrt(len(final)))
    return abs(fmean(final) - fmean(first)) > 2 * error


def _compared(ends: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    n = min(GAIN_OVER, len(ends) // 2)
    return ends[:n], ends[-n:]


def mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:
        half = sum(value / 2 / len(values) for value in values)
        return max(-_LARGEST, min(_LARGEST, 2 * half))
