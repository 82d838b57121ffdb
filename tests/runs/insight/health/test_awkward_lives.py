"""Healthy runs that look odd, and what can't be judged yet: sparse rewards, small sets, selected or ordered prompts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from runs.insight.health.config import Component
from runs.insight.health.history import MetricHistory
from runs.insight.health.judging.shapes import slope_errors, step_fall
from tests.runs.insight.health.lives import Life, Values
from tests.runs.insight.health.watched import CONFIG, ON_POLICY, Watched

CHECKED = (Component("accuracy", 1.0, 0.0, 1.0, True), Component("format", 0.25, 0.0, 1.0))
SPARSE = replace(ON_POLICY, components=CHECKED, completions=64)
ONE = replace(ON_POLICY, components=CHECKED[:1], completions=64)


def _nothing_is_right(step: int, values: Values) -> None:
    if "reward" in values:
        values["reward"] -= values["rewards/accuracy/mean"]
        values["rewards/accuracy/mean"] = 0.0


def test_zeros_of_a_hard_task_are_no_broken_component_and_not_healthy_either() -> None:
    life = Life(config=SPARSE, change=_nothing_is_right).live(250)
    assert "component_low" not in life.named
    assert life.health["verdict"] == "unknown"


def test_an_answer_checker_that_never_accepts_anything_is_told_in_the_end() -> None:
    assert "component_low" in Life(config=SPARSE, change=_nothing_is_right).live(520).named


def test_a_standstill_is_judged_with_48_updates_a_batch() -> None:
    life = Life(config=replace(CONFIG, updates=48.0), worst=0.3, best=0.3, noise=0.05).live(34 * 48, every=48)
    assert life.rules == {"reward_stuck"}


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_few_validation_prompts_that_jump_raise_no_alarm(seed: int) -> None:
    chance = np.random.default_rng(seed)

    def change(step: int, values: Values) -> None:
        if step % 20 == 0:
            values["eval_reward"] = float(chance.binomial(4, 0.2 + 0.6 * min(1.0, step / 300))) / 4

    config = replace(ONE, eval_every=20, eval_rows=4)
    assert not {"eval_falling", "eval_gap"} & Life(config=config, seed=seed, change=change).live(600).named.keys()


def test_rewards_of_prompts_in_order_may_fall_while_the_validation_holds() -> None:
    def change(step: int, values: Values, *, held: bool) -> None:
        if "reward" in values:
            values["reward"] *= 1 - 0.7 * min(1.0, max(0, step - 150) / 100)
        if step % 20 == 0:
            values["eval_reward"] = min(0.8, step / 200) * (1.0 if held or step < 150 else 0.2) + 0.01 * (
                step // 20 % 3
            )

    ordered = replace(ONE, in_order=True, eval_every=20, eval_rows=200)
    held, lost = (
        Life(config=ordered, rises=40.0, change=lambda s, v, held=held: change(s, v, held=held)).live(340)
        for held in (True, False)
    )
    assert "reward_falling" not in held.named
    assert {"reward_falling", "eval_falling"} & lost.named.keys()


def test_selected_prompts_may_score_less_while_all_prompts_score_more() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            values |= {"reward": 0.8 - 0.4 * min(1.0, max(0, step - 60) / 40), "prompts/extra_rounds": 0.0}
            values["prompts/mean_reward"] = min(0.9, 0.3 + step / 600)

    assert "reward_falling" not in Life(config=ONE, change=change).live(300).named


def test_a_schedule_that_ends_at_0_is_no_learning_rate_0() -> None:
    def ends_at(zero: int) -> set[str]:
        run = Watched(replace(ON_POLICY, max_steps=5000))
        for step in range(4761, 5001):
            rate = 1e-8 if step < zero else 0.0
            run.rows.append((step, 1000.0 + step, {"loss": 0.0, "grad_norm": 0.4, "learning_rate": rate}))
            run.t = run.rows[-1][1]
            if step % 20 == 0:
                run.look()
        return run.rules

    assert "lr_zero" not in ends_at(4975)
    assert "lr_zero" in ends_at(4800)


def test_a_few_values_need_a_clearer_slope_than_many() -> None:
    few, many = np.arange(6.0) + [0.4, -0.4] * 3, np.arange(60.0) + [0.4, -0.4] * 30
    assert 0 < slope_errors(few) < 3 < slope_errors(many)


@pytest.mark.parametrize("seed", range(4))
def test_a_fall_at_once_is_told_from_a_slow_one_in_noise(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(0.0, 0.07, 160)
    step, steps = np.where(np.arange(160) < 80, 0.6, 0.35), np.arange(160)
    slow = 0.6 - 0.25 * np.clip((steps - 50) / 60, 0, 1)
    at_once = step_fall(MetricHistory(steps, steps.astype(float), step + noise))
    assert at_once is not None
    assert abs(at_once.step - 80) <= 3
    assert step_fall(MetricHistory(steps, steps.astype(float), slow + noise)) is None
