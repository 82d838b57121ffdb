"""A run's reward in a few points, and its gain, both updated as rewards arrive.

Each point is the mean of equally many consecutive rewards; the last one may have fewer. The number is a power of two
that doubles when there are too many points, so only the points and the count are stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from math import hypot, sqrt
from statistics import fmean, stdev
from typing import Any

from runs.engine.models import Run
from runs.insight.metrics.series import series

_LARGEST = sys.float_info.max
MAX_POINTS = 40
REWARD = "reward"
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


def extended(run: Run, rewards: Sequence[float]) -> dict[str, Any]:
    """The run's columns after more rewards."""
    points, count = grown(run.trend, run.trend_of, rewards)
    return {"trend": points, "trend_of": count, "reward_ends": _ends([*run.reward_ends, *rewards])}


def rebuilt(run: Run) -> dict[str, Any]:
    """The run's columns computed from all stored rewards, after a resume has made some void."""
    rewards = series(run, [REWARD], sys.maxsize)["series"][REWARD]["value"]
    width = _width(len(rewards))
    points = [mean(rewards[at : at + width]) for at in range(0, len(rewards), width)]
    return {"trend": points, "trend_of": len(rewards), "reward_ends": _ends(rewards)}


def grown(trend: Sequence[float], count: int, rewards: Iterable[float]) -> tuple[list[float], int]:
    """The trend of `count` rewards extended by more rewards, and the new count."""
    points = list(trend)
    width = _width(count)
    if len(points) != -(-count // width):
        points, count, width = [], 0, 1
    for reward in rewards:
        if count == MAX_POINTS * width:
            points = [a / 2 + b / 2 for a, b in zip(points[::2], points[1::2], strict=True)]
            width *= 2
        before = count % width
        if before:
            # Divided before summing: the sum of the largest rewards would be infinite.
            points[-1] = points[-1] * (before / (before + 1)) + reward / (before + 1)
        else:
            points.append(reward)
        count += 1
    return points, count


def _ends(rewards: list[float]) -> list[float]:
    return rewards if len(rewards) <= 2 * GAIN_OVER else rewards[:GAIN_OVER] + rewards[-GAIN_OVER:]


def _width(count: int) -> int:
    """The number of rewards per point."""
    width = 1
    while count > MAX_POINTS * width:
        width *= 2
    return width


def mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:
        half = sum(value / 2 / len(values) for value in values)
        return max(-_LARGEST, min(_LARGEST, 2 * half))
