"""How many completions an evaluation asks for at once, in settings that TRL accepts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from workers.contract.run import evaluation
from workers.contract.run.batch_rules import Batch, problems
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.spec import DataSpec, ModelSpec, RunSpec


def settings(rollout: Rollout, *, rows: int, processes: int = 1, **grpo: Any) -> dict[str, Any]:
    data, hardware = DataSpec("sums", 1, "", 1000, rows), HardwareSpec("", rollout, processes=processes)
    return evaluation.settings(RunSpec("r1", "", evaluation.EVALUATION, ModelSpec("/m"), data, (), hardware, grpo))


@pytest.mark.parametrize(
    ("rollout", "rows", "processes", "sizes", "at_once"),
    [
        (Rollout.TRANSFORMERS, 500, 1, {"per_device_train_batch_size": 16}, 16),
        (Rollout.COLOCATE, 500, 1, {"per_device_train_batch_size": 16}, 1024),
        (Rollout.COLOCATE, 500, 4, {"per_device_train_batch_size": 16, "num_generations_eval": 3}, 264),
        (Rollout.SERVER, 50, 1, {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}, 200),
        (Rollout.SERVER, 5, 1, {"steps_per_generation": 4, "num_iterations": 2}, 24),
    ],
)
def test_vllm_is_asked_for_many_completions_and_the_trainer_for_as_many_as_it_trains_on(
    rollout: Rollout, rows: int, processes: int, sizes: dict[str, int], at_once: int
) -> None:
    sizes = {"num_generations": 8, "num_generations_eval": 4, **sizes}
    found = settings(rollout, rows=rows, processes=processes, **sizes)
    assert found["per_device_eval_batch_size"] == at_once
    batch = replace(
        Batch.of(found, processes),
        evaluates=True,
        per_device_eval_batch_size=at_once,
        num_generations_eval=found["num_generations_eval"],
    )
    assert not problems(batch)
