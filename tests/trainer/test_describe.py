"""The installed GRPOConfig as data for forms, and its own word on settings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.trainer.preloaded import Preloaded

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

ASK = """
import json, sys
from workers.trainer import describe
print(json.dumps([describe.describe(), *map(describe.check, json.load(sys.stdin))]))
"""
BATCH = {"per_device_train_batch_size": 4, "num_generations": 8}


@pytest.fixture(scope="module")
def answers(preloaded: Preloaded) -> Any:
    asked = [
        {"grpo": BATCH, "processes": 2},
        {"grpo": BATCH, "processes": 1},
        {"grpo": {**BATCH, "lr_scheduler_type": "bogus"}, "processes": 2},
        {"grpo": {**BATCH, "output_dir": "/etc"}, "processes": 2},
        {"grpo": {**BATCH, "max_prompt_length": 9}, "processes": 2},
    ]
    return json.loads(preloaded.run("-c", ASK, stdin=json.dumps(asked)).stdout)


def test_every_field_has_a_type_a_default_and_help(answers: Any) -> None:
    fields = {field["name"]: field for field in answers[0]["fields"]}
    assert len(fields) > 100
    assert all(field["type"] in ("int", "float", "bool", "str", "json") for field in fields.values())
    assert all(field["help"] and field["group"] for field in fields.values())
    assert fields["beta"]["type"] == "float"
    assert "cosine" in fields["lr_scheduler_type"]["choices"]
    assert fields["loss_type"]["default"] in fields["loss_type"]["choices"]
    assert fields["epsilon_high"]["optional"]
    assert answers[0]["defaults"]["learning_rate"] == 1e-6
    assert "output_dir" not in fields


def test_settings_are_checked_as_the_installed_trl_computes_them(answers: Any) -> None:
    assert answers[1] == {"ok": True, "error": ""}
    assert "generation_batch_size (4) must be divisible by num_generations (8)" in answers[2]["error"]
    assert "bogus is not a valid SchedulerType" in answers[3]["error"]
    assert "output_dir is set by the control plane" in answers[4]["error"]
    assert "max_prompt_length" in answers[5]["error"]
