"""A run's reward in a few points, updated as it arrives: the sparkline of the list.

Each point is the mean of equally many consecutive rewards; the last one may have fewer. The number is a power of two
that doubles when there are too many points, so only the points and the count are stored.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from statistics import fmean

from runs.metrics.series import series
from runs.models import Run

_LARGEST = sys.float_info.max
MAX_POINTS = 40
REWARD = "reward"


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


def rebuilt(run: Run) -> tuple[list[float], int]:
    """The trend computed from all stored rewards, after a resume has made some void."""
    rewards = series(run, [REWARD], sys.maxsize)["series"][REWARD]["value"]
    width = _width(len(rewards))
    return [mean(rewards[at : at + width]) for at in range(0, len(rewards), width)], len(rewards)


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
