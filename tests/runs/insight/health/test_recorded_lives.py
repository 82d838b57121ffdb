"""Two runs as they were: the demo, trained by TRL on the CPU, and the same with a learning rate sixty times as high.

Lines of [step, seconds, values].
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from runs.insight.health.config import Component, Config
from runs.insight.health.history import Row
from runs.insight.health.presets import Preset
from tests.runs.insight.health.lives import Life

PARTS = (("accuracy", 1.0), ("thinks", 0.25), ("answers", 0.25))
DEMO = Config(beta=0.02, updates=2.0, cap=20, components=tuple(Component(n, w, 0.0, 1.0) for n, w in PARTS))
ATROPOS = {"kl": {"warning": 0.1, "bad": 0.5}}


def relive(name: str, **more: Any) -> Life:
    life = Life(config=DEMO, texts=lambda step: None, **more)
    lines = Path(__file__).with_name(f"{name}.jsonl").read_text().splitlines()
    rows: list[Row] = [(step, t, values) for step, t, values in map(json.loads, lines)]
    for row in rows:
        life.rows.append(row)
        if len(life.rows) % 5 == 0:
            life.look()
    return life


def test_the_demo_is_well_from_its_first_step_to_its_last() -> None:
    life = relive("demo")
    assert life.opened == []
    assert life.health["verdict"] == "well"
    assert {check["rule"] for check in life.health["checks"] if check["state"] == "well"} >= {"kl", "clip", "entropy"}


def test_a_learning_rate_far_too_high_is_seen_within_forty_steps() -> None:
    life = relive("demo_too_hot")
    assert life.opened[0][1:] == ("kl", "warning")
    assert life.opened[0][0] <= 40
    assert "grad_spikes" in life.rules


def test_a_stricter_preset_calls_the_same_run_bad() -> None:
    assert relive("demo_too_hot", preset=Preset("strict", ATROPOS)).health["verdict"] == "bad"
