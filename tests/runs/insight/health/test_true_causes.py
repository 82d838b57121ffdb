"""The first finding names the true cause: three kinds of mismatch, the scorer, lengths, sources, memorized prompts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from runs.insight.health.config import Component
from runs.insight.health.history import Text
from tests.runs.insight.health.lives import Life, Values, after
from tests.runs.insight.health.watched import CONFIG, ON_POLICY

AT = 200
GAP = "sampling__sampling_logp_difference__mean"
FLAT = {"worst": 0.3, "best": 0.3, "noise": 0.05}
EVALUATED = replace(ON_POLICY, eval_every=20)


@dataclass(frozen=True)
class Case:
    rule: str
    words: str
    life: dict[str, Any] = field(default_factory=dict)
    steps: int = AT + 120


def _grows(since: int, value: float) -> float:
    return value + min(0.4, 0.004 * since)


def _unapplied(step: int, values: Values) -> None:
    values["kl"] = 0.002 + min(0.4, 0.003 * step)
    for name in [name for name in values if name.startswith("sampling/")]:
        del values[name]


def _flips(step: int, values: Values) -> None:
    if step >= AT and "reward" in values:
        values["rewards/accuracy/mean"] *= -1


def _leaves_its_range(step: int, values: Values) -> None:
    if step >= AT and "reward" in values:
        values["rewards/format/mean"] -= 1.5


def _pays_for_length(step: int, values: Values) -> None:
    if "reward" in values:
        share = min(1.0, step / 200)
        values["completions/mean_length"] = 150 + 300 * share
        values["rewards/accuracy/mean"] = 0.2 + 0.02 * (step % 5)
        values["rewards/style/mean"] = 0.3 + 0.6 * share + 0.01 * (step % 3)


def _one_source_falls(step: int, values: Values) -> None:
    if "reward" in values:
        values["sources/algebra/reward"] = values["reward"]
        values["sources/geometry/reward"] = values["reward"] * (1.0 if step < AT else 0.1)


def _one_of_two_equal_sources_falls(step: int, values: Values) -> None:
    if "reward" in values:
        total = values["reward"]
        values["sources/algebra/reward"] = total
        values["sources/geometry/reward"] = total * (1.0 if step < AT else max(0.1, 1.0 - (step - AT) / 60))
        values["reward"] = (values["sources/algebra/reward"] + values["sources/geometry/reward"]) / 2


def _both_sources_fall(step: int, values: Values) -> None:
    if "reward" in values:
        values["reward"] *= 1.0 if step < AT else max(0.1, 1.0 - (step - AT) / 60)
        chance = 0.05 * ((step * 7919) % 11 - 5) / 5
        values["sources/algebra/reward"] = values["reward"] + chance
        values["sources/geometry/reward"] = values["reward"] - chance


def _memorizes(step: int, values: Values) -> None:
    if step % 20 == 0:
        values["eval_reward"] = 0.4 + 0.01 * (step // 20 % 3)


CASES = {
    "other tokens, several updates": Case("other_tokens", "same tokens", {"change": after(0, mean_ratio=0.55)}),
    "other tokens, one update": Case(
        "other_tokens", "same tokens", {"config": ON_POLICY, "change": after(0, mean_ratio=0.55)}
    ),
    "another template": Case("other_tokens", "same tokens", {"change": after(0, **{GAP: 0.4})}),
    "weights that stay behind": Case("weights_apart", "reach vLLM", {"change": after(AT, **{GAP: _grows})}),
    "an adapter that is never applied": Case(
        "weights_apart", "reach vLLM", {"change": after(0, **{GAP: _grows}), **FLAT}
    ),
    "the same without a measured gap": Case("kl_flat", "reach vLLM", {"change": _unapplied, **FLAT}),
    "later updates that move far": Case("ratio", "later updates", {"change": lambda s, v: _drifts(s, v)}),
    "a sign that flips": Case("scorer_changed", "sign", {"change": _flips}),
    "a component outside of its range": Case(
        "scorer_changed", "outside of its declared range", {"change": _leaves_its_range}
    ),
    "a component that breaks": Case("scorer_changed", "scorer", {"change": after(AT, rewards__format__mean=0.0)}),
    "length that is rewarded": Case("length_rewarded", "easier to learn than “accuracy”", {"change": _pays_for_length}),
    "a source that is forgotten": Case("source_falling", "“geometry”", {"change": _one_source_falls}),
    "one of two equal sources": Case("source_falling", "“geometry”", {"change": _one_of_two_equal_sources_falls}),
    "all sources at once": Case("reward_falling", "down from", {"change": _both_sources_fall}),
    "prompts that are memorized": Case("eval_gap", "memorizing", {"config": EVALUATED, "change": _memorizes}, 400),
    "entropy that falls far": Case("entropy_fall", "explores less", {"change": after(AT, entropy=0.07)}),
    "identical from the first step": Case(
        "identical", "greedy", {"texts": lambda s: Text(s, 24, 0, 0, 24), "change": after(0, frac_reward_zero_std=1.0)}
    ),
    "identical short answers": Case("zero_spread", "greedy", {"change": after(0, frac_reward_zero_std=1.0), **FLAT}),
}


def test_a_length_that_jumps_while_a_component_rises_is_not_called_rewarded() -> None:
    def change(step: int, values: Values) -> None:
        _pays_for_length(step, values)
        if "reward" in values:
            values["completions/mean_length"] = 150.0 + (step % 3) + (800.0 if step >= AT - 80 else 0.0)

    assert "length_rewarded" not in Life(change=change).live(AT + 40).named


def _drifts(step: int, values: Values) -> None:
    if step >= AT and "reward" not in values:
        values["mean_ratio"] = 1.4


def test_the_first_finding_names_the_cause(subtests: pytest.Subtests) -> None:
    for name, case in CASES.items():
        with subtests.test(name=name):
            life = Life(**case.life).live(case.steps)
            first = life.health["findings"][0]
            assert first["rule"] == case.rule, [finding["rule"] for finding in life.health["findings"]]
            assert case.words in first["sentence"]
            assert "{" not in first["sentence"] + first["try"] + first["metric"]


def test_a_batch_generated_ahead_is_not_a_lost_weight_update() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            values |= {"sampling/sampling_logp_difference/mean": min(0.2, 0.02 * step), "sampling/staleness": 2.0}

    life = Life(change=change).live(150)
    finding = life.finding("stale")
    assert finding is not None
    assert "generated ahead" in finding["sentence"]
    assert life.finding("weights_apart") is None
    assert life.finding("other_tokens") is None


def test_slow_steps_name_the_part_that_takes_longer() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            values |= {"time/generation_s": 20.0 if step >= AT else 4.0, "time/update_s": 3.0}

    life = Life(change=change, step_s=lambda step: 26.0 if step >= AT else 10.0).live(AT + 120)
    finding = life.finding("throughput")
    assert finding is not None
    assert "mostly in generation: 20 s instead of 4 s" in finding["sentence"]
    assert finding["try"].startswith("Generation takes longer")


@pytest.mark.parametrize("steps", [24, 38])
def test_a_run_of_a_few_generations_is_too_short_to_be_called_healthy(steps: int) -> None:
    life = Life(config=ON_POLICY).live(steps, every=2)
    assert life.health["verdict"] == "unknown"
    assert life.live(60).health["verdict"] == "well"


@pytest.mark.parametrize("updates", [24, 25, 40])
def test_rewards_are_judged_with_any_number_of_updates_a_batch(updates: int) -> None:
    life = Life(config=replace(CONFIG, updates=float(updates)), rises=30.0 * updates).live(
        60 * updates, every=5 * updates
    )
    states = {check["rule"]: check["state"] for check in life.health["checks"]}
    assert states["reward_falling"] == states["reward_stuck"] == "well"


def test_memory_that_grows_late_is_told_and_memory_that_settles_is_not() -> None:
    def machine(step: int, *, settles: bool) -> Values:
        since = min(step, 60) if settles else max(0, step - 300)
        return {"host/run_memory_mib": 20e3 + 2500.0 * since}

    assert "host_memory" in Life(machine=lambda s: machine(s, settles=False)).live(460).named
    assert "host_memory" not in Life(machine=lambda s: machine(s, settles=True)).live(460).named


def test_a_trade_between_components_is_told_once() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            share = min(1.0, max(0, step - AT) / 80)
            values["rewards/format/mean"] = min(1.0, values["rewards/format/mean"] + 0.12 * share)
            values["rewards/accuracy/mean"] -= 0.16 * share

    life = Life(change=change, rises=60.0, best=0.8, noise=0.06).live(900)
    assert sum(rule == "components" for _, rule, _ in life.opened) <= 1


def test_one_lucky_completion_is_no_gain_that_can_be_lost() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            reward = 1 / 64 if step == 31 else 0.0
            values |= {"reward": reward, "rewards/accuracy/mean": reward, "frac_reward_zero_std": 0.95}

    one = replace(ON_POLICY, components=(Component("accuracy", 1.0, 0.0, 1.0, True),), completions=64)
    assert "reward_falling" not in Life(config=one, change=change).live(320).named


def test_harder_prompts_to_which_the_run_adapts_are_no_fall() -> None:
    def change(step: int, values: Values) -> None:
        if "reward" in values:
            level = 0.4 + 0.003 * (step % 120)
            values["reward"] = 1.5 * level + 0.05 * ((step * 7919) % 11 - 5) / 5

    assert "reward_falling" not in Life(config=ON_POLICY, change=change).live(400).named


def test_a_kl_that_falls_from_a_peak_is_no_drift() -> None:
    def change(step: int, values: Values) -> None:
        values["kl"] += 3.0 * 2 ** (-(step - AT) / 12) if step >= AT else 0.0

    assert "kl" not in Life(change=change).live(AT + 150).named
