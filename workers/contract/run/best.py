"""The best checkpoint of a run by a metric: the trainer keeps it, and the page marks it."""

import math
from collections.abc import Sequence

OVER = 10
"""Steps up to a checkpoint that its figure averages: a single step's value is mostly chance."""
EVALUATION = "eval_"
"""Prefix of evaluation metrics, of which the newest value counts."""
OTHER = "other_reward"
OTHER_REWARD = EVALUATION + OTHER
"""The metric of RunSpec.eval_rewards: their weighted sum."""
_LOWER = ("loss", "kl", "failed", "clipped_ratio", "frac_reward_zero_std", "grad_norm", "step_time")


def figure_of(metric: str, values: Sequence[float]) -> float | None:
    """Compute a checkpoint's figure from the metric's values up to its step, in order; None without a finite one."""
    finite = [value for value in values if math.isfinite(value)]
    latest = finite[-1:] if metric.startswith(EVALUATION) else finite[-OVER:]
    return math.fsum(value / len(latest) for value in latest) if latest else None


def lower_is_better(metric: str) -> bool:
    return metric.removeprefix(EVALUATION).rpartition("/")[2] in _LOWER


def is_better(metric: str, figure: float, than: float) -> bool:
    return figure < than if lower_is_better(metric) else figure > than
