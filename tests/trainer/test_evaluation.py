"""Evaluation with real TRL: completions of the held-out rows, scored, by the model or a checkpoint of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.trainer.test_training import of_kind
from workers.contract import FileName
from workers.contract.evaluation import EVALUATION

pytestmark = [pytest.mark.trainer, pytest.mark.processes, pytest.mark.timeout(400)]


def evaluated(train: Train, folder: Path, model: Path, **run: Any) -> list[dict[str, Any]]:
    grpo = {"num_generations_eval": 4}
    builders.attempt_folder(folder, model=model, grpo=grpo, eval_rows=6, run={"kind": EVALUATION, **run})
    done = train(folder)
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line["data"] for line in of_kind(folder, "trained")] == [{"how": "completed"}]
    return builders.lines(folder / FileName.SAMPLES)


def test_held_out_prompts_are_answered_by_the_model_and_by_a_checkpoint(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    trained = builders.attempt_folder(tmp_path / "r0/1", model=tiny_model, grpo={"learning_rate": 1e-3}, eval_rows=6)
    assert train(trained).returncode == 0
    base = evaluated(train, tmp_path / "r1/1", tiny_model)
    again = evaluated(train, tmp_path / "r2/1", tiny_model)
    checkpoint = evaluated(train, tmp_path / "r3/1", tiny_model, start_from="r0/1/checkpoints/checkpoint-4")
    assert {(group["mode"], len(group["completions"])) for group in base} == {("eval", 4)}
    assert [group["row"] for group in base] == [group["row"] for group in checkpoint]
    assert len({group["row"] for group in base}) == 6

    def texts(groups: list[dict[str, Any]]) -> list[str]:
        return [one["text"] for group in groups for one in group["completions"]]

    assert texts(base) == texts(again)
    assert texts(base) != texts(checkpoint)
