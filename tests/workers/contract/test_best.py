"""A checkpoint's figure by a metric, and which of two is better."""

from __future__ import annotations

import math

import pytest

from workers.contract.run import evaluation


@pytest.mark.parametrize(
    ("metric", "values", "figure"),
    [
        ("reward", [], None),
        ("reward", [math.nan], None),
        ("reward", [1.0, 2.0], 1.5),
        ("reward", [100.0, *[1.0] * evaluation.FIGURE_STEPS], 1.0),
        ("reward", [1e308] * 10, 1e308),
        ("eval_reward", [1.0, 2.0, math.nan], 2.0),
    ],
)
def test_the_figure_is_a_mean_of_the_last_steps_or_the_newest_evaluation(
    metric: str, values: list[float], figure: float | None
) -> None:
    assert evaluation.checkpoint_figure(metric, values) == (None if figure is None else pytest.approx(figure))


@pytest.mark.parametrize("metric", ["reward", "eval_reward", "rewards/right/mean", "entropy"])
def test_more_is_better(metric: str) -> None:
    assert evaluation.is_better(metric, 2.0, reference=1.0)
    assert not evaluation.is_better(metric, 1.0, reference=1.0)


@pytest.mark.parametrize("metric", ["loss", "kl", "eval_kl", "rewards/right/failed", "completions/clipped_ratio"])
def test_less_is_better(metric: str) -> None:
    assert evaluation.is_better(metric, 1.0, reference=2.0)
    assert not evaluation.is_better(metric, 1.0, reference=1.0)
