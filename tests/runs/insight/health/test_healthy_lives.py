"""Runs that are well: nobody is called for them, from their first step to their last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.insight.health.config import Component
from tests.runs.insight.health.lives import Life
from tests.runs.insight.health.watched import CONFIG, ON_POLICY

ONE = replace(CONFIG, components=(Component("accuracy", 1.0, 0.0, None),))
WELL: dict[str, dict[str, Any]] = {
    "learns": {},
    "learns on policy, without a reference": {"config": ON_POLICY},
    "learns at once": {"rises": 30.0},
    "learns slowly": {"rises": 500.0, "worst": 0.05},
    "has small, noisy batches": {"noise": 0.15, "rises": 200.0},
    "begins well and gets a little better": {"worst": 0.75, "best": 0.9},
    "learns all there is": {"best": 1.05, "noise": 0.02},
    "has a reward without an upper end": {"config": ONE},
    "is on the CPU": {"config": replace(CONFIG, gpus=(), corrected=False)},
}


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", WELL)
def test_a_run_that_is_well_calls_nobody(name: str, seed: int) -> None:
    life = Life(seed=seed, **WELL[name]).live(900)
    assert life.opened == []
    assert life.health["verdict"] == "well"


def test_a_long_plateau_after_learning_is_no_fall() -> None:
    life = Life(rises=60.0, noise=0.1).live(4000, every=20)
    assert life.opened == []


def test_a_run_without_any_of_the_metrics_has_no_finding() -> None:
    life = Life(change=lambda step, values: values.clear(), texts=lambda step: None).live(100)
    assert life.health["findings"] == []
    assert life.health["verdict"] == "unknown"


def test_a_learnt_dataset_is_a_note_not_an_alert() -> None:
    def solved(step: int, values: dict[str, float]) -> None:
        if step > 300:
            values |= {"entropy": 0.005, "grad_norm": 0.0}
            if "reward" in values:
                values |= {"frac_reward_zero_std": 1.0, "reward": 1.5}

    life = Life(rises=60.0, best=1.0, noise=0.01, change=solved).live(600)
    assert life.opened == []
    assert life.health["verdict"] == "well"
    assert {f["rule"] for f in life.health["findings"]} >= {"reward_saturated", "zero_spread", "entropy"}
