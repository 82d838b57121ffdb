"""A run's reward in a few points, kept up as it comes: what the list's sparkline draws.

Each point is the mean of equally many rewards in a row, the last one of those there are so far. How many: a power of
two, which doubles when the points would be too many. So a number beside the points is all there is to remember.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from statistics import fmean

from runs.metrics.series import series
from runs.models import Run

_LARGEST = sys.float_info.max
MOST = 40
REWARD = "reward"


def grown(trend: Sequence[float], count: int, rewards: Iterable[float]) -> tuple[list[float], int]:
    """The trend of `count` rewards with more of them at its end, and of how many it is then."""
    points = list(trend)
    width = _width(count)
    if len(points) != -(-count // width):
        points, count, width = [], 0, 1
    for reward in rewards:
        if count == MOST * width:
            points = [a / 2 + b / 2 for a, b in zip(points[::2], points[1::2], strict=True)]
            width *= 2
        before = count % width
        if before:
            # Parts of a mean, not a sum over a number: the largest rewards would have a sum that is infinite.
            points[-1] = points[-1] * (before / (before + 1)) + reward / (before + 1)
        else:
            points.append(reward)
        count += 1
    return points, count


def anew(run: Run) -> tuple[list[float], int]:
    """From all that is stored: after a resume has made some of it void."""
    rewards = series(run, [REWARD], sys.maxsize)["series"][REWARD]["value"]
    width = _width(len(rewards))
    return [mean(rewards[at : at + width]) for at in range(0, len(rewards), width)], len(rewards)


def _width(count: int) -> int:
    """How many rewards a point stands for."""
    width = 1
    while count > MOST * width:
        width *= 2
    return width


def mean(values: Sequence[float]) -> float:
    try:
        return fmean(values)
    except OverflowError:
        half = sum(value / 2 / len(values) for value in values)
        return max(-_LARGEST, min(_LARGEST, 2 * half))
