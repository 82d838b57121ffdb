"""A run's reward trend in a few points, updated as rewards arrive.

Each point is the mean of an equal number of consecutive rewards; the last point may have fewer. That number is a power
of two and doubles when there are too many points, so only the points and the number of rewards are stored.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from runs.engine.gain import GAIN_OVER, mean
from runs.engine.models import Run
from runs.insight.metrics.series import series

MAX_POINTS = 40
REWARD = "reward"


def extended_columns(run: Run, rewards: Sequence[float]) -> dict[str, Any]:
    """Return the new values of the run's trend columns after adding rewards."""
    points, count = add_rewards(run.trend, run.trend_of, rewards)
    return {"trend": points, "trend_of": count, "reward_ends": _ends([*run.reward_ends, *rewards])}


def rebuilt_columns(run: Run) -> dict[str, Any]:
    """Return the values of the run's trend columns, computed from all stored rewards after a resume made some void."""
    rewards = series(run, [REWARD], sys.maxsize)["series"][REWARD]["value"]
    width = _width(len(rewards))
    points = [mean(rewards[start : start + width]) for start in range(0, len(rewards), width)]
    return {"trend": points, "trend_of": len(rewards), "reward_ends": _ends(rewards)}


def add_rewards(trend: Sequence[float], count: int, rewards: Iterable[float]) -> tuple[list[float], int]:
    """Add rewards to the trend of `count` earlier ones. Return its points and the new number of rewards."""
    points = list(trend)
    width = _width(count)
    if len(points) != -(-count // width):
        points, count, width = [], 0, 1
    for reward in rewards:
        if count == MAX_POINTS * width:
            points = [a / 2 + b / 2 for a, b in zip(points[::2], points[1::2], strict=True)]
            width *= 2
        remainder = count % width
        if remainder:
            # Divided before summing: the sum of the largest rewards would be infinite.
            points[-1] = points[-1] * (remainder / (remainder + 1)) + reward / (remainder + 1)
        else:
            points.append(reward)
        count += 1
    return points, count


def _ends(rewards: list[float]) -> list[float]:
    return rewards if len(rewards) <= 2 * GAIN_OVER else rewards[:GAIN_OVER] + rewards[-GAIN_OVER:]


def _width(count: int) -> int:
    width = 1
    while count > MAX_POINTS * width:
        width *= 2
    return width
