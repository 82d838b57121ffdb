"""What GRPO makes of scores: weighted totals, and each completion's advantage over its group.

The same arithmetic as TRL 1.16's GRPOTrainer (multi_objective_aggregation and scale_rewards of its GRPOConfig), on
plain lists and in double precision: TRL computes in single, so the two agree to about four digits. A test holds that
against TRL's own lines. A score of None is one that doesn't apply: it is left out of sums, means and spreads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

AGGREGATIONS = ("sum_then_normalize", "normalize_then_sum")
SCALES = ("group", "batch", "none")
EPSILON = 1e-4
"""What TRL adds to a spread before it divides by it."""
NO_SPREAD = 1e-8
"""A standard deviation up to which TRL counts a group as one without spread."""

Values = Sequence[Sequence[float | None]]
"""values[component][completion]: a finite score, or None."""


@dataclass(frozen=True)
class Advantages:
    """Of a batch of whole groups, the completions of a group beside each other."""

    totals: list[float | None]
    """The weighted sum of each completion's scores: what TRL logs as the reward. None: no component applies to it."""
    means: list[float | None]
    """Of each group's totals. None: none of its completions has one."""
    stds: list[float | None]
    """Of each group's totals, with n - 1. None: fewer than two completions have one."""
    advantages: list[float]
    """Of each completion. 0 where no component applies to it, or its group (or batch) has no spread to divide by."""
    zero_spread: list[bool]
    """Of each group: nothing can be learned from it, since fewer than two of its completions have a total or they are
    all worth the same. (TRL's frac_reward_zero_std leaves groups out that have fewer than two totals.)"""


def totals(values: Values, weights: Sequence[float]) -> list[float | None]:
    """The weighted sum of each completion's scores. Raises ValueError if there isn't one weight a component."""
    return [_weighted(scores, weights) for scores in zip(*_checked(values, weights), strict=True)]


def advantages(
    values: Values,
    weights: Sequence[float],
    group: int,
    aggregation: str = "sum_then_normalize",
    scale: str | bool = "group",
) -> Advantages:
    """`group`: completions of one prompt. `scale`: what the difference to the mean is divided by, as scale_rewards;
    TRL's older True and False are "group" and "none". With normalize_then_sum TRL doesn't look at it: each component
    is brought to its group's mean and spread, and their sum to the batch's.

    Raises ValueError for an aggregation or scale that TRL hasn't, and for a batch that isn't made of whole groups.
    """
    scale = {True: "group", False: "none"}[scale] if isinstance(scale, bool) else scale
    if aggregation not in AGGREGATIONS or scale not in SCALES:
        raise ValueError(f"TRL has no aggregation {aggregation!r} with scale_rewards {scale!r}")
    summed = totals(values, weights)
    if group < 1 or len(summed) % group:
        raise ValueError(f"{len(summed)} completions are no whole groups of {group}")
    spreads = [deviation(part) for part in _groups(summed, group)]
    if aggregation == "sum_then_normalize":
        compared = summed
        result = _of_sums(summed, group, scale)
    else:
        compared = _normalised_sums(values, weights, group)
        result = _over(compared, mean(compared), deviation(compared) if len(compared) > 1 else 0.0)
    return Advantages(
        totals=summed,
        means=[mean(part) for part in _groups(summed, group)],
        stds=spreads,
        advantages=result,
        zero_spread=[(spread := deviation(part)) is None or spread <= NO_SPREAD for part in _groups(compared, group)],
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Of those that are there; None without any."""
    given = [one for one in values if one is not None]
    return math.fsum(given) / len(given) if given else None


def deviation(values: Sequence[float | None]) -> float | None:
    """With Bessel's correction; None of fewer than two."""
    given = [one for one in values if one is not None]
    if len(given) < 2:
        return None
    middle = math.fsum(given) / len(given)
    return math.sqrt(math.fsum((one - middle) ** 2 for one in given) / (len(given) - 1))


def _of_sums(summed: Sequence[float | None], group: int, scale: str) -> list[float]:
    batch = deviation(summed)
    result: list[float] = []
    for part in _groups(summed, group):
        if scale == "none":
            result += _over(part, mean(part), None, divides=False)
        elif scale == "batch":
            result += _over(part, mean(part), batch if len(summed) > 1 else 0.0)
        else:
            result += _over(part, mean(part), deviation(part) if group > 1 else 0.0)
    return result


def _normalised_sums(values: Values, weights: Sequence[float], group: int) -> list[float | None]:
    """Weighted sums of the components, each first brought to mean 0 and spread 1 within its group. A component that
    fewer than two completions of the group have has no spread there and counts for none of them."""
    normalised: list[list[float | None]] = []
    for column in values:
        brought: list[float | None] = []
        for part in _groups(column, group):
            middle, spread = mean(part), deviation(part) if group > 1 else 0.0
            brought += [
                None if one is None or middle is None or spread is None else (one - middle) / (spread + EPSILON)
                for one in part
            ]
        normalised.append(brought)
    sums = [_weighted(scores, weights) or 0.0 for scores in zip(*normalised, strict=True)]
    given = zip(*values, strict=True)
    return [None if all(s is None for s in scores) else one for one, scores in zip(sums, given, strict=True)]


def _over(
    part: Sequence[float | None], middle: float | None, spread: float | None, *, divides: bool = True
) -> list[float]:
    """How far each lies above the mean, in spreads; 0 where there is nothing to say."""
    if middle is None or (divides and spread is None):
        return [0.0] * len(part)
    divisor = (spread or 0.0) + EPSILON if divides else 1.0
    return [0.0 if one is None else (one - middle) / divisor for one in part]


def _weighted(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    given = [score * weight for score, weight in zip(scores, weights, strict=True) if score is not None]
    return math.fsum(given) if given else None


def _groups(values: Sequence[float | None], group: int) -> list[Sequence[float | None]]:
    return [values[start : start + group] for start in range(0, len(values), group)]


def _checked(values: Values, weights: Sequence[float]) -> Values:
    if len(values) != len(weights) or not values:
        raise ValueError(f"{len(weights)} weights for {len(values)} components")
    return values
