"""GRPO's weighted reward totals, and each completion's advantage within its group.

This is the arithmetic of TRL 1.16's GRPOTrainer (multi_objective_aggregation and scale_rewards of its GRPOConfig), on
plain lists and in double precision: TRL uses single precision, so the two agree to about four digits. A test compares
it with TRL's code. A score of None doesn't apply: it is excluded from sums, means and standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

AGGREGATIONS = ("sum_then_normalize", "normalize_then_sum")
SCALES = ("group", "batch", "none")
EPSILON = 1e-4
"""Constant that TRL adds to a standard deviation before dividing by it."""
NO_SPREAD = 1e-8
"""Largest standard deviation of a group that is treated as having no spread."""

Values = Sequence[Sequence[float | None]]
"""Scores as values[component][completion], each finite or None."""


@dataclass(frozen=True)
class Advantages:
    """Totals and advantages of a batch of whole groups, with each group's completions adjacent."""

    totals: list[float | None]
    """The weighted sum of each completion's scores, which TRL logs as the reward; None if no component applies."""
    means: list[float | None]
    stds: list[float | None]
    """The sample standard deviation (n - 1) of each group's totals; None if fewer than two completions have one."""
    advantages: list[float]
    """One per completion; 0 if no component applies, or its group (or batch) has no spread."""
    zero_spread: list[bool]
    """One per group: True if nothing can be learnt from it, because fewer than two completions have a total or all
    totals are equal. (TRL's frac_reward_zero_std excludes groups with fewer than two totals.)"""


def totals(values: Values, weights: Sequence[float]) -> list[float | None]:
    """Return the weighted sum of each completion's scores. Raises ValueError unless each component has a weight."""
    if len(values) != len(weights) or not values:
        raise ValueError(f"{len(weights)} weights for {len(values)} components")
    return [_weighted_sum(scores, weights) for scores in zip(*values, strict=True)]


def advantages(
    values: Values,
    weights: Sequence[float],
    group: int,
    aggregation: str = "sum_then_normalize",
    scale: str | bool = "group",
) -> Advantages:
    """Compute GRPO's advantages for groups of `group` completions.

    `scale` is TRL's scale_rewards: whose standard deviation divides the difference from the mean. TRL's older True and
    False mean "group" and "none". normalize_then_sum ignores `scale`: it normalises each component within its group,
    and the sum within the batch.

    Raises ValueError for an aggregation or scale unknown to TRL, and for a batch that isn't made of whole groups.
    """
    scale = {True: "group", False: "none"}[scale] if isinstance(scale, bool) else scale
    if aggregation not in AGGREGATIONS or scale not in SCALES:
        raise ValueError(f"TRL has no aggregation {aggregation!r} with scale_rewards {scale!r}")
    sums = totals(values, weights)
    if group < 1 or len(sums) % group:
        raise ValueError(f"{len(sums)} completions are not whole groups of {group}")
    spreads = [standard_deviation(part) for part in _groups(sums, group)]
    if aggregation == "sum_then_normalize":
        compared_totals = sums
        result = _advantages_of_sums(sums, group, scale)
    else:
        compared_totals = _normalised_sums(values, weights, group)
        std_dev = standard_deviation(compared_totals) if len(compared_totals) > 1 else 0.0
        result = _standardise(compared_totals, mean(compared_totals), std_dev)
    return Advantages(
        totals=sums,
        means=[mean(part) for part in _groups(sums, group)],
        stds=spreads,
        advantages=result,
        zero_spread=[
            (spread := standard_deviation(part)) is None or spread <= NO_SPREAD
            for part in _groups(compared_totals, group)
        ],
    )


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values other than None, or None if there are no such values."""
    numbers = [value for value in values if value is not None]
    return math.fsum(numbers) / len(numbers) if numbers else None


def standard_deviation(values: Sequence[float | None]) -> float | None:
    """Return the standard deviation with Bessel's correction, or None for fewer than two values."""
    numbers = [value for value in values if value is not None]
    if len(numbers) < 2:
        return None
    average = math.fsum(numbers) / len(numbers)
    return math.sqrt(math.fsum((value - average) ** 2 for value in numbers) / (len(numbers) - 1))


def _advantages_of_sums(sums: Sequence[float | None], group: int, scale: str) -> list[float]:
    result: list[float] = []
    for part in _groups(sums, group):
        compared_totals = sums if scale == "batch" else part
        std_dev = standard_deviation(compared_totals) if len(compared_totals) > 1 else 0.0
        result += _standardise(part, mean(part), std_dev, divides=scale != "none")
    return result


def _normalised_sums(values: Values, weights: Sequence[float], group: int) -> list[float | None]:
    """Normalise each component to mean 0 and standard deviation 1 within its group, and return the weighted sums.

    A component is ignored in a group where fewer than two completions have a score for it.
    """
    normalised: list[list[float | None]] = []
    for column in values:
        normalised_part: list[float | None] = []
        for part in _groups(column, group):
            average, std_dev = mean(part), standard_deviation(part) if group > 1 else 0.0
            normalised_part += [
                None if value is None or average is None or std_dev is None else (value - average) / (std_dev + EPSILON)
                for value in part
            ]
        normalised.append(normalised_part)
    sums = [_weighted_sum(scores, weights) or 0.0 for scores in zip(*normalised, strict=True)]
    rows = zip(*values, strict=True)
    return [None if all(score is None for score in row) else total for total, row in zip(sums, rows, strict=True)]


def _standardise(
    part: Sequence[float | None], average: float | None, std_dev: float | None, *, divides: bool = True
) -> list[float]:
    """Return each value's difference from the mean, in standard deviations if `divides`; 0 where that is undefined."""
    if average is None or (divides and std_dev is None):
        return [0.0] * len(part)
    divisor = (std_dev or 0.0) + EPSILON if divides else 1.0
    return [0.0 if value is None else (value - average) / divisor for value in part]


def _weighted_sum(scores: Sequence[float | None], weights: Sequence[float]) -> float | None:
    weighted_scores = [score * weight for score, weight in zip(scores, weights, strict=True) if score is not None]
    return math.fsum(weighted_scores) if weighted_scores else None


def _groups(values: Sequence[float | None], group: int) -> list[Sequence[float | None]]:
    return [values[start : start + group] for start in range(0, len(values), group)]
