"""Evaluation with real TRL: completions of the held-out rows, scored, by the model or a checkpoint of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.trainer.preloaded import Preloaded
from tests.trainer.reward_runs import liking, make_models
from tests.trainer.test_training import of_kind
from workers.contract.run.evaluation import EVALUATION, OTHER_REWARD
from workers.contract.run.spec import RewardSpec
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]


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


BREAKS = RewardSpec(
    "breaks", "python", params={"source": "def reward(completions, **_):\n    raise KeyError('gone')\n"}
)
GRPO = {"eval_strategy": "steps", "eval_steps": 2, "save_steps": 2, "save_total_limit": 1}


def test_another_reward_config_in_evaluations_changes_nothing_of_the_training(
    tiny_model: Path, tmp_path: Path, train: Train, preloaded: Preloaded
) -> None:
    models = make_models(preloaded, tiny_model, tmp_path)
    others = (RewardSpec("format", "soft_format", 2.0), liking(models.fine), liking(models.infinite, "inf"), BREAKS)
    run = {"eval_rewards": others, "keep_best": OTHER_REWARD}
    asked = {"model": tiny_model, "grpo": GRPO, "eval_rows": 4}
    plain = builders.attempt_folder(tmp_path / "plain", **asked)
    folder = builders.attempt_folder(tmp_path / "evaluated", run=run, **asked)
    for each in (plain, folder):
        done = train(each)
        assert done.returncode == 0, done.stderr[-2000:]
    assert builders.logs(folder) == builders.logs(plain)
    weights = "checkpoints/checkpoint-4/model.safetensors"
    assert (folder / weights).read_bytes() == (plain / weights).read_bytes()
    other_rewards_are_those_of_the_evaluations(folder)


def other_rewards_are_those_of_the_evaluations(folder: Path) -> None:
    evaluations = [line["data"] for line in of_kind(folder, "train") if "eval_reward" in line["data"]]
    for values in evaluations:
        total = 2 * values["eval_rewards/format/mean"] + 0.5 * values["eval_rewards/likes/mean"]
        assert values[OTHER_REWARD] == pytest.approx(total, abs=1e-6)
        assert {values[f"eval_rewards/{name}/failed"] for name in ("inf", "breaks")} == {1.0}
    groups = builders.lines(folder / FileName.SAMPLES)
    of_mode = {group["mode"]: group["completions"][0]["rewards"].keys() for group in groups}
    assert of_mode["eval"] - of_mode["train"] == {"format", "likes", "inf", "breaks"}
    state = json.loads((folder / "checkpoints/checkpoint-4/trainer_state.json").read_bytes())
    assert state["best_metric"] == max(values[OTHER_REWARD] for values in evaluations)
