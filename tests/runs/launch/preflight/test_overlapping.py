"""Generation one step ahead: where it can't work, where it hardly pays, where it is offered."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runs.launch.preflight.checks import overlapping
from runs.launch.preflight.finding import Grade
from tests.runs.launch.preflight.test_preflight import COLOCATE, FINE, NCCL, SWAP, grpo
from workers.contract.run.hardware import ServerSpec, WeightSync
from workers.contract.run.overlapping import CORRECTION
from workers.contract.run.prompts import PromptsSpec

SHARED = replace(SWAP, server=ServerSpec(weight_sync=WeightSync.LORA, shared=True))
ATTACHED = replace(SWAP, server=ServerSpec(weight_sync=WeightSync.LORA, attached=("http://127.0.0.1:8000",)))
ON = {"ahead": True}


@pytest.mark.parametrize(
    ("changes", "grade", "sentence"),
    [
        (ON, Grade.STOP, "this profile generates by the trainer itself"),
        ({**ON, "hardware": COLOCATE}, Grade.STOP, "this profile generates inside the trainer"),
        ({**ON, "hardware": NCCL, **grpo(**{CORRECTION: False})}, Grade.STOP, "would bias every update"),
        ({**ON, "hardware": NCCL, "prompts": PromptsSpec(by_difficulty=True)}, Grade.STOP, "can't be known ahead"),
        ({**ON, "hardware": SHARED}, Grade.WARN, "slows both"),
        ({**ON, "hardware": NCCL}, Grade.NOTE, "weights one update old"),
        ({"hardware": NCCL}, Grade.NOTE, "separate GPUs but take turns"),
        ({"hardware": ATTACHED}, Grade.NOTE, "separate GPUs but take turns"),
    ],
)
def test_it_is_refused_warned_of_or_offered(changes: dict[str, Any], grade: Grade, sentence: str) -> None:
    found = list(overlapping.check_ahead(replace(FINE, **changes)))
    assert found[0].grade == grade
    assert sentence in found[0].cause
    assert found[0].fixes or grade == Grade.NOTE
    assert [one.grade for one in found].count(Grade.STOP) == (grade == Grade.STOP)


@pytest.mark.parametrize("changes", [{}, {"hardware": COLOCATE}, {"hardware": SHARED}, {"hardware": None}])
def test_it_is_not_offered_where_it_would_not_pay(changes: dict[str, Any]) -> None:
    assert not list(overlapping.check_ahead(replace(FINE, **changes)))
