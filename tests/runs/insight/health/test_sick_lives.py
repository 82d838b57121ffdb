"""Runs with one thing wrong: the rule for it says so, soon, at the right level, and no other rule cries with it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import nan
from typing import Any

import pytest

from runs.insight.health.history import Text
from runs.insight.health.judging.rules import RULES
from tests.runs.insight.health.lives import Life, Values, after
from tests.runs.insight.health.test_true_causes import CASES
from tests.runs.insight.health.watched import CONFIG
from workers.contract.run import gateway

AT = 400
"""The step at which it goes wrong."""


@dataclass(frozen=True)
class Sickness:
    rule: str
    level: str
    life: dict[str, Any]
    within: int = 80
    then: int = 60
    """So many steps later it still says so."""
    besides: set[str] = field(default_factory=set)
    """Rules that may well say the same."""


def _flat(step: int, values: Values) -> None:
    values.pop("rewards/format/mean", None)


def _falls(step: int, values: Values) -> None:
    if step >= AT and "reward" in values:
        values["reward"] -= min(1.0, 0.02 * (step - AT))


def _games_format(step: int, values: Values) -> None:
    if "reward" in values and step >= AT:
        share = min(1.0, (step - AT) / 100)
        values["rewards/format/mean"] += 0.1 * share
        values["rewards/accuracy/mean"] -= 0.35 * share


def _loses_format(step: int, values: Values) -> None:
    if "reward" in values and step >= AT:
        values["rewards/format/mean"] = max(0.08, values["rewards/format/mean"] - 0.02 * (step - AT))


def _moves_far(step: int, values: Values) -> None:
    if step >= AT and "reward" not in values:
        values["mean_ratio"] = 1.3


def _spikes(step: int, values: Values) -> None:
    if step >= AT and step % 9 == 0:
        values["grad_norm"] = 60.0


def _failing(step: int) -> Values:
    return {"rewards/format/failed": 0.3 if step >= AT else 0.01}


def _low(since: int, value: float) -> float:
    return 0.2 + 0.02 * (since % 5)


def _evaluated(step: int) -> Values:
    return {} if step % 20 else {"eval_reward": min(0.9, step / 300) - max(0, step - AT) / 300}


def _full(step: int) -> Values:
    full = step >= AT
    return {
        "vllm/kv_cache_percent": 99.0 if full else 60.0,
        "vllm/requests_waiting": 20.0 * full,
        "vllm/requests_running": 32.0,
    }


EPISODES = replace(CONFIG, turn_limit=6, call_limit=4, tools=True, completions=64)


def _episodes(step: int, values: Values, **wrong: float) -> None:
    """A model that searches; `wrong` from AT on (`__` for a slash)."""
    if "reward" in values:
        values |= {
            "episodes/turns/mean": 2.8,
            "episodes/cut": 0.1,
            "tools/call_frequency": 1.8,
            "tools/search/calls": 1.6,
            "tools/search/failed": 0.8 if step < 30 else 0.05,
            "tools/calculator/calls": 0.001,
            "tools/calculator/failed": 1.0,
        } | {name.replace("__", "/"): value for name, value in wrong.items() if step >= AT}


def _spams(step: int, values: Values) -> None:
    if step >= AT and "reward" in values:
        values["reward"] = 0.9
    _episodes(step, values, tools__call_frequency=22.0, episodes__turns__mean=5.8)


TRUNCATES = {"completions__clipped_ratio": 0.5}
SICK: dict[str, Sickness] = {
    "drifts": Sickness("kl", "warning", {"change": after(AT, kl=0.8)}),
    "drifts far": Sickness("kl", "bad", {"change": after(AT, kl=9.0)}),
    "clips much": Sickness("clip", "warning", {"change": after(AT, **{"clip_ratio__region_mean": 0.5})}),
    "moves far in a batch": Sickness("ratio", "warning", {"change": _moves_far}),
    "no longer explores": Sickness("entropy", "bad", {"change": after(AT, entropy=0.002)}, besides={"entropy_fall"}),
    "writes noise": Sickness("entropy_rise", "warning", {"change": after(AT, entropy=4.0)}),
    "never moves": Sickness("reward_stuck", "warning", {"worst": 0.3, "best": 0.3, "noise": 0.05}, within=0),
    "forgets": Sickness("reward_falling", "bad", {"change": _falls}, within=120),
    "pays nothing for the format": Sickness(
        "component_low", "warning", {"change": after(0, rewards__format__mean=0.0)}, within=-AT + 120
    ),
    "has no spread": Sickness("zero_spread", "warning", {"change": after(AT, frac_reward_zero_std=0.92)}),
    "has no spread at all": Sickness("zero_spread", "bad", {"change": after(AT, frac_reward_zero_std=1.0)}),
    "writes ever more": Sickness(
        "length_cap",
        "warning",
        {"change": after(AT, **{"completions__mean_length": lambda since, value: min(500.0, value + 4 * since)})},
        within=150,
    ),
    "repeats itself": Sickness("repetition", "bad", {"texts": lambda s: Text(s, 24, 20 if s >= AT else 0, 0)}),
    "says nothing": Sickness("empty", "warning", {"texts": lambda s: Text(s, 24, 0, 4 if s >= AT else 0)}),
    "games one component": Sickness("components", "warning", {"change": _games_format}, within=100, then=0),
    "gives up the format": Sickness(
        "components", "bad", {"change": _loses_format}, within=100, besides={"component_falling"}
    ),
    "samples from another policy": Sickness(
        "stale", "warning", {"change": after(AT, **{"sampling__sampling_logp_difference__mean": 0.3})}
    ),
    "masks most of a batch": Sickness(
        "stale_mean", "bad", {"change": after(AT, **{"sampling__importance_sampling_ratio__mean": 0.2})}
    ),
    "leaves long completions out": Sickness("masked", "bad", {"change": after(AT, **{"sampling__share_masked": 0.5})}),
    "truncates weights to nothing": Sickness(
        "stale_least",
        "warning",
        {
            "config": replace(CONFIG, correction="token_truncate"),
            "change": lambda s, v: v.update({"sampling/importance_sampling_ratio/min": 0.05 if s >= AT else 0.5}),
        },
    ),
    "spikes": Sickness("grad_spikes", "warning", {"change": _spikes}),
    "has huge gradients": Sickness(
        "grad_high", "warning", {"change": after(AT, grad_norm=40.0)}, besides={"grad_spikes"}
    ),
    "has no gradient": Sickness("grad_zero", "warning", {"change": after(AT, grad_norm=0.0)}),
    "fails to score": Sickness("component_failing", "warning", {"change": lambda s, v: v.update(_failing(s))}),
    "rewards noise": Sickness(
        "reward_noise", "warning", {"change": after(AT, reward_std=0.004, frac_reward_zero_std=0.75)}
    ),
    "says little": Sickness("length_collapse", "warning", {"change": after(AT, completions__mean_length=12.0)}),
    "says the same": Sickness("identical", "warning", {"texts": lambda s: Text(s, 24, 0, 0, 24 if s >= AT else 2)}),
    "writes gibberish": Sickness("gibberish", "bad", {"texts": lambda s: Text(s, 24, 0, 0, 0, 20 if s >= AT else 0)}),
    "learns form alone": Sickness(
        "component_stuck", "warning", {"change": after(0, rewards__accuracy__mean=_low)}, within=0
    ),
    "learns by heart": Sickness(
        "eval_falling",
        "bad",
        {"config": replace(CONFIG, eval_every=20), "change": lambda s, v: v.update(_evaluated(s))},
        within=160,
        besides={"eval_gap"},
    ),
    "fills a GPU": Sickness(
        "gpu_memory", "warning", {"machine": lambda s: {"gpu/1/memory_mib": 60e3 + 110 * s}}, then=0
    ),
    "fills the host": Sickness(
        "host_memory", "warning", {"machine": lambda s: {"host/run_memory_mib": 20e3 + 700 * s}}, then=0
    ),
    "fills vLLM's cache": Sickness(
        "vllm_full", "warning", {"config": replace(CONFIG, served=True), "machine": lambda s: _full(s)}
    ),
    "has a slow rank": Sickness(
        "straggler",
        "warning",
        {
            "config": replace(CONFIG, ranks=(0, 1)),
            "machine": lambda s: {"gpu/0/power_w": 400.0, "gpu/1/power_w": 400.0 if s < AT else 200.0},
        },
    ),
    "learns at rate 0": Sickness("lr_zero", "bad", {"change": after(AT, learning_rate=0.0)}, within=40),
    "has no numbers": Sickness("not_finite", "bad", {"change": after(AT, grad_norm=nan)}),
    "explodes": Sickness("loss", "warning", {"change": after(AT, loss=-30.0)}),
    "has a tool that fails": Sickness(
        "tools_failing",
        "warning",
        {"config": EPISODES, "change": lambda s, v: _episodes(s, v, tools__search__failed=0.8)},
    ),
    "gives up its tools": Sickness(
        "tools_unused",
        "warning",
        {"config": EPISODES, "change": lambda s, v: _episodes(s, v, tools__call_frequency=0.0)},
        within=150,
    ),
    "calls for nothing": Sickness("tool_spam", "warning", {"config": EPISODES, "change": _spams}, within=150),
    "is out of turns": Sickness(
        "episodes_cut",
        "warning",
        {"config": EPISODES, "change": lambda s, v: _episodes(s, v, episodes__cut=0.7)},
    ),
    "is cut off": Sickness("truncation", "warning", {"change": after(AT, **TRUNCATES)}),
    "gets slow": Sickness("throughput", "warning", {"step_s": lambda s: 30.0 if s >= AT else 10.0}, within=120),
    "waits for its rewards": Sickness(
        "slow_rewards",
        "warning",
        {"change": lambda s, v: v.update({"time/generation_s": 2.0, "time/rewards_s": 8.0 if s >= AT else 0.5})},
    ),
    "runs hot": Sickness("gpu_hot", "warning", {"heat": lambda s, gpu: 93.0 if s >= AT and gpu == 1 else 60.0}),
    "leaves a GPU idle": Sickness("gpu_idle", "warning", {"use": lambda s, gpu: 0.0 if s >= AT and gpu == 1 else 60.0}),
}


def test_what_is_wrong_is_said_once_and_by_its_own_rule(subtests: pytest.Subtests) -> None:
    for name in SICK:
        with subtests.test(name=name):
            sick = SICK[name]
            # Nothing is wrong before AT, and few looks there save most of this test's time.
            life = Life(**sick.life).live(AT, every=30).live(max(sick.within, 0) + sick.then)
            assert sick.rule in life.named, life.health["checks"]
            assert life.named[sick.rule] <= AT + sick.within
            assert len(life.opened) == len(life.rules) <= 1 + bool(sick.besides)
            assert life.rules <= {sick.rule, *sick.besides}
            assert life.health["verdict"] == sick.level
            finding = life.finding(sick.rule)
            assert finding is not None
            assert finding["level"] == sick.level
            assert "{" not in finding["sentence"] + finding["try"] + finding["metric"]


def test_every_rule_has_a_sick_run_here_or_a_test_of_its_own() -> None:
    own = {"reward_saturated", "entropy_high", "stalled", "component_falling", "solved_falling"}
    own |= {"no_agents", "no_groups"}
    own |= {case.rule for case in CASES.values()}
    own |= {"sync", "judge_parted", "length_explains"}
    assert {sick.rule for sick in SICK.values()} | own == {rule.id for rule in RULES}


def test_a_run_that_comes_round_is_well_again() -> None:
    life = Life(change=lambda s, v: v.update(kl=3.0) if 400 <= s < 460 else None).live(600)
    assert [rule for _, rule, _ in life.opened] == ["kl"]
    assert [rule for _, rule in life.closed] == ["kl"]
    assert life.health["verdict"] == "well"


def test_a_figure_that_sways_around_its_bound_is_one_finding() -> None:
    def sways(step: int, values: Values) -> None:
        values["kl"] = 0.55 if step // 25 % 2 else 0.47

    life = Life(change=sways).live(600)
    assert len(life.opened) == 1
    assert life.closed == []


def test_one_step_beyond_a_bound_says_nothing() -> None:
    life = Life(change=lambda s, v: v.update(kl=50.0, entropy=0.0, loss=900.0) if s == 300 else None).live(400)
    assert life.opened == []


def test_a_worse_state_of_the_same_is_told_as_such() -> None:
    life = Life(change=after(AT, kl=lambda since, value: 0.8 if since < 60 else 5.0)).live(500)
    finding = life.finding("kl")
    assert finding is not None
    assert finding["level"] == "bad"
    assert finding["since_step"] < AT + 30


def test_no_step_for_long_is_told_by_the_control_planes_clock() -> None:
    life = Life().live(60)
    assert not any(f["rule"] == "stalled" for f in life.look(quiet_s=100)["findings"])
    assert life.look(quiet_s=300)["verdict"] == "warning"
    assert life.look(quiet_s=3600)["verdict"] == "bad"


def waiting(driven_by: str, waits_s: float, quiet_s: float) -> dict[str, Any]:
    """The finding of a run before its first step, whose trainer waits."""
    life = Life(config=replace(EPISODES, driven_by=driven_by))
    life.system.append((None, life.t, {gateway.WAITS_S: waits_s, gateway.QUIET_S: quiet_s}))
    life.look(quiet_s=waits_s)
    return next(iter(life.health["findings"]), {"rule": "", "level": "", "sentence": ""})


@pytest.mark.parametrize(
    ("driven_by", "waits_s", "quiet_s", "level", "words"),
    [
        ("agents", 170, 170, "", ""),
        ("agents", 9000, 0, "", ""),
        ("agents", 600, 240, "warning", "no agent has had an open session for 4 min"),
        ("agents", 3600, 3600, "bad", "has waited 1 h"),
        ("atropos", 600, 5, "", ""),
        ("atropos", 300, 300, "warning", "No environment has requested a completion for 5 min."),
        ("atropos", 3600, 5, "bad", "but their groups don't fill a batch"),
        ("", 9000, 9000, "", ""),
    ],
)
def test_a_trainer_that_waits_for_others_programs_says_so_before_any_step(
    driven_by: str, waits_s: float, quiet_s: float, level: str, words: str
) -> None:
    finding = waiting(driven_by, waits_s, quiet_s)
    assert finding["level"] == level
    assert words in finding["sentence"]


def test_a_rule_that_says_nothing_of_such_a_run_says_why() -> None:
    life = Life(config=replace(CONFIG, beta=0.0, updates=1.0, corrected=False, gpus=())).live(60)
    why = {check["rule"]: check["why"] for check in life.health["checks"] if check["state"] == "apart"}
    assert set(why) >= {"kl", "clip", "ratio", "stale", "stale_mean", "stale_least", "gpu_idle"}
    assert all(why.values())


def test_a_model_that_learns_to_call_is_well() -> None:
    life = Life(config=EPISODES, change=_episodes).live(500)
    assert life.opened == []
    assert life.health["verdict"] == "well"


def test_calls_at_the_limit_are_no_spam_while_the_reward_rises() -> None:
    def rises(step: int, values: Values) -> None:
        _episodes(step, values, tools__call_frequency=22.0, episodes__turns__mean=5.8)
        if "reward" in values:
            values["reward"] = step / 1000

    assert "tool_spam" not in Life(config=EPISODES, change=rises).live(560).named


def test_a_run_of_one_turn_is_not_judged_by_rules_of_episodes() -> None:
    life = Life().live(60)
    apart = {check["rule"] for check in life.health["checks"] if check["state"] == "apart"}
    assert apart >= {"tools_failing", "tools_unused", "tool_spam", "episodes_cut"}
