"""The gain of a run's reward (mean of its last rewards minus mean of its first), and statistics over several runs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, sqrt
from statistics import fmean, stdev

_MAX_FLOAT = sys.float_info.max
GAIN_OVER = 10
"""Number of steps at each end whose mean rewards are compared."""


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation and range of a value over the `n` runs that have it."""

    n: int
    mean: float | None
    deviation: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> "Spread":
        numbers = [value for value in values if value is not None]
        if not numbers:
            return cls(0, None, None, None, None)
        deviation = stdev(numbers) if len(numbers) > 1 else None
        return cls(len(numbers), fmean(numbers), deviation, min(numbers), max(numbers))


def final_reward(ends: Sequence[float]) -> float | None:
    """Return the mean of the last ten rewards, or of all if there are fewer. `ends` is Run.reward_ends."""
    return mean(ends[-GAIN_OVER:]) if ends else None


def gain(ends: Sequence[float]) -> float | None:
    """Return the mean of the last ten rewards minus that of the first ten; for a short run, compare its two halves, and
    return None if it is too short. `ends` is Run.reward_ends."""
    if len(ends) < GAIN_OVER + 2:
        return None
    first_rewards, last_rewards = _first_and_last(ends)
    return mean(last_rewards) - mean(first_rewards)


def is_significant(ends: Sequence[float]) -> bool:
    """Return whether the gain exceeds two standard errors of the difference of the means, with unequal variances (Welch
    1947). `ends` is Run.reward_ends."""
    if gain(ends) is None:
        return False
    scale = max(map(abs, ends)) or 1.0  # the squares of the largest rewards would be infinite
    first_rewards, last_rewards = ([value / scale for value in rewards] for rewards in _first_and_last(ends))
    error = hypot(stdev(first_rewards) / sqrt(len(first_rewards)), stdev(last_rewards) / sqrt(len(last_rewards)))
    return abs(fmean(last_rewards) - fmean(first_rewards)) > 2 * error


def _first_and_last(ends: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    n = min(GAIN_OVER, len(ends) // 2)
    return ends[:n], ends[-n:]


def mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:
        half = sum(value / 2 / len(values) for value in values)
        return max(-_MAX_FLOAT, min(_MAX_FLOAT, 2 * half))
