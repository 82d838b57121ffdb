"""One illness is one message: what probably follows from a finding stands below it and alarms nobody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from runs.insight.health.config import Config
from runs.insight.health.judging.rules import BY_ID
from tests.runs.insight.health.lives import Life, Values
from tests.runs.insight.health.watched import CONFIG

AT = 200


def _diverges(step: int, values: Values) -> None:
    if step < AT:
        return
    values |= {"kl": 4.0, "entropy": 5.0}
    if step >= AT + 20 and "reward" in values:
        values |= {"reward": 0.0, "frac_reward_zero_std": 0.95}


def test_a_cause_comes_first_and_its_consequences_send_no_message() -> None:
    life = Life(change=_diverges).live(320)
    assert [rule for _, rule, _ in life.opened] == ["kl"]
    assert life.health["findings"][0]["rule"] == "kl"
    causes = {finding["rule"]: finding["cause"] for finding in life.health["findings"]}
    assert causes["kl"] == ""
    assert causes["reward_falling"] == causes["zero_spread"] == causes["entropy_rise"] == "kl"


def test_a_cause_that_shows_later_is_no_second_message() -> None:
    def change(step: int, values: Values) -> None:
        if step >= AT and "reward" in values:
            values["reward"] = 0.0
        if step >= AT + 80:
            values["kl"] = 4.0

    life = Life(change=change).live(360)
    assert [rule for _, rule, _ in life.opened] == ["reward_falling"]
    assert life.health["findings"][0]["rule"] == "kl"


def test_a_consequence_that_outlives_its_cause_is_no_news() -> None:
    def change(step: int, values: Values) -> None:
        if AT <= step < AT + 60:
            values["kl"] = 4.0
        if step >= AT and "reward" in values:
            values["reward"] = 0.0

    life = Life(change=change).live(380)
    assert [rule for _, rule, _ in life.opened] == ["kl"]
    assert [rule for _, rule in life.closed] == ["kl"]
    assert life.health["verdict"] == "bad"


def test_a_cause_that_comes_back_under_a_consequence_is_no_news() -> None:
    def change(step: int, values: Values) -> None:
        values["kl"] = 4.0 if AT <= step < AT + 60 or step >= AT + 180 else 0.1
        if step >= AT and "reward" in values:
            values["reward"] = 0.0

    life = Life(change=change).live(AT + 280)
    assert life.finding("kl") is not None
    assert [rule for _, rule, _ in life.opened] == ["kl"]


def test_a_validation_reward_that_falls_before_the_training_s_is_the_same_illness() -> None:
    def change(step: int, values: Values) -> None:
        if step % 20 == 0:
            values["eval_reward"] = min(0.9, step / 300) - max(0, step - AT) / 100
        if step >= AT + 80 and "reward" in values:
            values["reward"] *= 0.6

    life = Life(config=replace(CONFIG, eval_every=20), change=change).live(AT + 180)
    assert [rule for _, rule, _ in life.opened] == ["eval_gap"]
    assert {"eval_falling", "reward_falling"} <= life.named.keys()


def test_components_that_move_apart_below_a_falling_reward_are_the_same_illness() -> None:
    def change(step: int, values: Values) -> None:
        if step >= AT and "reward" in values:
            values["rewards/accuracy/mean"] *= 0.2
            values["rewards/format/mean"] = 1.0
            values["reward"] *= 0.4

    life = Life(change=change).live(AT + 120)
    assert len(life.opened) == 1
    assert {"reward_falling", "components"} <= life.named.keys()


def test_what_was_wrong_and_is_no_longer_is_resolved() -> None:
    life = Life(change=lambda s, v: v.update(kl=4.0) if AT <= s < AT + 60 else None).live(360)
    resolved = {check["rule"]: check["resolved"] for check in life.health["checks"] if check.get("resolved")}
    assert resolved == {"kl": life.closed[0][0]}


def test_causes_are_rules_and_go_in_no_circle(subtests: pytest.Subtests) -> None:
    for rule in BY_ID:
        with subtests.test(rule=rule):
            causes: set[str] = set()
            new = set(BY_ID[rule].follows)
            while new:
                causes |= new
                new = {cause for each in new for cause in BY_ID[each].follows} - causes
            assert rule not in causes


def test_advice_has_numbers() -> None:
    finding = Life(change=_diverges).live(260).finding("kl")
    assert finding is not None
    assert "lower the learning rate (from 1e-06 to about 3e-07)" in finding["try"].lower()


def test_advice_is_of_the_hardware_that_the_run_has() -> None:
    hardware = Config(), Config(gpus=(0,)), Config(gpus=(0,), from_vllm=True)
    assert [config.advice["slowed_by"] for config in hardware] == [
        " and whether its cores are all busy",
        " and whether a GPU is hot or throttled",
        ", whether a GPU is hot or throttled, and vLLM’s waiting requests",
    ]


def test_a_standstill_that_is_still_open_keeps_the_count_that_opened_it() -> None:
    life = Life(worst=0.3, best=0.3, noise=0.05).live(330)
    opened = life.finding("reward_stuck")
    assert opened is not None
    life.worst = life.best = 0.5
    life.live(18)
    finding = life.finding("reward_stuck")
    assert finding is not None
    assert finding["value"] >= opened["value"] > finding["bound"]
    check = next(check for check in life.health["checks"] if check["rule"] == "reward_stuck")
    assert check["value"] == finding["value"]
