"""What the figures count: generations where several updates share one, steps that are whole, metrics still logged."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import pytest

from runs.insight.health.history import Text
from tests.runs.insight.health.lives import Life, Values, after
from tests.runs.insight.health.watched import CONFIG

AT = 800


def updates(count: float) -> Life:
    return Life(config=replace(CONFIG, updates=count), rises=200.0)


def _collapses(step: int, values: Values) -> None:
    if step >= AT and "reward" in values:
        values |= {"reward": 0.1, "rewards/accuracy/mean": 0.05}


@pytest.mark.parametrize("count", [1, 8, 16])
def test_a_collapse_is_told_however_many_updates_share_a_batch(count: int) -> None:
    life = updates(count)
    life.change = _collapses
    life.live(AT + 20 * count + 60, every=20)
    assert set(life.named) & {"reward_falling", "component_falling"}
    assert {step >= AT for step, _, _ in life.opened} == {True}


@pytest.mark.parametrize("count", [8, 16])
def test_every_reward_rule_has_a_figure_with_many_updates_a_batch(count: int) -> None:
    life = updates(count).live(110 * count, every=40)
    states = {check["rule"]: check["state"] for check in life.health["checks"]}
    waiting = {rule for rule, state in states.items() if state == "waits"}
    assert not waiting & {"reward_falling", "component_low", "zero_spread", "length_cap", "components", "truncation"}
    assert life.health["verdict"] == "well"


def test_a_first_update_is_1_by_construction_and_hides_no_ratio() -> None:
    def change(step: int, values: Values) -> None:
        if step >= 200 and "reward" not in values:
            values |= {"mean_ratio": 1.35, "clip_ratio/region_mean": 0.45}

    life = Life(change=change).live(300)
    assert set(life.named) == {"ratio", "clip"}
    assert life.rules == {"ratio"}


def test_a_flat_reward_is_told_with_eight_updates_a_batch() -> None:
    life = Life(config=replace(CONFIG, updates=8.0), worst=0.3, best=0.3).live(1000, every=40)
    assert life.rules == {"reward_stuck"}


def test_a_short_run_must_show_progress_earlier() -> None:
    flat = Life(config=replace(CONFIG, max_steps=300), worst=0.3, best=0.3).live(200)
    assert flat.rules == {"reward_stuck"}
    assert Life(config=replace(CONFIG, max_steps=300)).live(300).opened == []


def test_a_metric_that_is_no_longer_logged_is_neither_well_nor_better() -> None:
    def change(step: int, values: Values) -> None:
        values["kl"] = 5.0 if step > 100 else 0.1
        if step > 200:
            for name in ("kl", "entropy"):
                values.pop(name)

    life = Life(change=change).live(360)
    states = {check["rule"]: check["state"] for check in life.health["checks"]}
    assert states["kl"] == states["entropy"] == "gone"
    assert life.finding("kl") is not None
    assert life.closed == []


def test_without_a_reward_nothing_is_called_well() -> None:
    def change(step: int, values: Values) -> None:
        for name in [name for name in values if name.startswith(("reward", "frac"))]:
            values.pop(name)

    assert Life(change=change).live(200).health["verdict"] == "unknown"


def test_numbers_missing_in_every_other_step_are_told_once() -> None:
    def change(step: int, values: Values) -> None:
        if step > 200 and hash((step, 7)) % 2:
            values["grad_norm"] = nan

    life = Life(change=change).live(600)
    assert [rule for _, rule, _ in life.opened] == ["not_finite"]
    assert life.closed == []


def test_answers_that_repeat_by_nature_are_no_loops() -> None:
    assert Life(texts=lambda step: Text(step, 24, 16, 0)).live(200).opened == []


def test_a_collapse_in_the_first_steps_is_a_fall() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            level = max(0.0, 0.4 - 0.03 * step)
            values |= {f"rewards/{name}/mean": level for name in ("accuracy", "format", "style")}
            values["reward"] = 1.5 * level

    assert Life(change=change).live(150).rules & {"reward_falling", "component_falling"}


def test_no_reward_in_500_completions_is_told_before_the_usual_time() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            values["rewards/format/mean"] = 0.0

    config = replace(CONFIG, updates=1.0, completions=64)
    assert Life(config=config, change=change).live(18).rules == {"component_low"}
    assert Life(config=replace(config, completions=8), change=change).live(18).rules == set()


def test_all_completions_cut_for_five_steps_need_no_more() -> None:
    life = Life(config=replace(CONFIG, updates=1.0), change=after(0, completions__clipped_ratio=1.0)).live(6)
    assert life.rules == {"truncation"}


def test_two_gpus_that_take_turns_within_a_step_are_not_idle() -> None:
    life = Life(step_s=lambda step: 420.0)
    life.live(12, every=100)
    half = {0: (90.0, 0.0), 1: (0.0, 90.0)}
    ends = [t for _, t, _ in life.rows]
    life.system = [
        (None, end - 420 + 10 * n, {f"gpu/{gpu}/util_percent": use[n > 20] for gpu, use in half.items()})
        for end in ends
        for n in range(42)
    ]
    life.look()
    assert life.opened == []


def test_an_idle_gpu_during_an_evaluation_is_none() -> None:
    evaluating = Life(use=lambda step, gpu: 60.0)
    evaluating.live(100)
    t = evaluating.t
    evaluating.system += [(None, t + 2 * n, {"gpu/0/util_percent": 0.0}) for n in range(300)]
    evaluating.rows.append((100, t + 600, {"eval_reward": 0.5}))
    evaluating.t = t + 600
    evaluating.live(60)
    assert evaluating.opened == []


def test_the_first_evaluation_may_take_longer_than_any_step() -> None:
    life = Life(config=replace(CONFIG, eval_every=100)).live(99)
    assert life.look(quiet_s=1200)["verdict"] == "bad"
    life.live(1)
    assert life.look(quiet_s=1200)["verdict"] == "well"
    assert life.look(quiet_s=4000)["verdict"] == "warning"
