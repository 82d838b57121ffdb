"""What can't be trained is refused with a sentence, most of it before torch is imported."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Train
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import REWARD_MODEL, RewardSpec
from workers.contract.wire.names import FileName
from workers.trainer import __main__ as trainer
from workers.trainer.configuration import spec as trainer_spec

RIGHT = RewardSpec("right", "numeric_match")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Enough of a model folder to get past the first look."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"model": "/nowhere/at/all"}, "/nowhere/at/all doesn't exist on this host"),
        ({"rewards": ()}, "no reward"),
        ({"rewards": (RIGHT, RIGHT)}, "Two rewards are named 'right'"),
        ({"rewards": (RewardSpec("x", "no_such"),)}, "'no_such', which the library doesn't have"),
        ({"rewards": (RewardSpec("x", "numeric_match", params={"tolerance": -1}),)}, "tolerance: must be at least"),
        ({"rewards": (replace(RIGHT, weight=0.0),)}, "Every reward has weight 0"),
        ({"run": {"failed_share": 1.5}}, "failed_share must be a share from 0 to 1, not 1.5"),
        ({"rewards": (RewardSpec("x", REWARD_MODEL, params={}),)}, "model: choose a model"),
        (
            {"rewards": (RewardSpec("x", REWARD_MODEL, params={"model": "/nowhere/judge"}),)},
            "/nowhere/judge doesn't exist",
        ),
        ({"rewards": (RewardSpec("x", "python", params={"source": "x = 1"}),)}, "it defines no function reward"),
        ({"hardware": {"rollout": Rollout.COLOCATE}}, "needs a GPU"),
        ({"hardware": {"rollout": Rollout.SERVER}}, "needs its own settings"),
        ({"run": {"ahead": True}}, "needs a vLLM server, but this profile generates by the trainer itself"),
        ({"resume_from": "/nowhere/checkpoint-3"}, "no checkpoint to resume from in /nowhere/checkpoint-3"),
        ({"eval_rows": 8, "validation": 4}, "evaluates on 8 rows, but the dataset has 4 validation rows"),
        ({"eval_rows": 8, "validation": 0}, "the dataset has no validation rows"),
        ({"validation": 40}, "no rows to train on"),
    ],
)
def test_a_spec_that_cannot_be_trained_is_refused_with_a_sentence(
    asked: dict, words: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builders.attempt_folder(tmp_path / "a", **{"model": model, **asked})
    assert trainer.main([str(folder)]) == 3
    assert words in capsys.readouterr().err.splitlines()[-1]


def test_a_folder_without_a_spec_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert trainer.main([str(tmp_path)]) == 3
    assert "The spec can't be read" in capsys.readouterr().err


def test_a_spec_with_an_unknown_field_is_refused_by_its_name(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = builders.attempt_folder(tmp_path / "a", model=model) / FileName.SPEC
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}))
    assert trainer.main([str(path.parent)]) == 3
    assert "unknown field 'colour'" in capsys.readouterr().err


def test_another_dataset_than_the_launched_one_is_refused(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=model)
    with (folder / FileName.DATASET).open("a") as file:
        file.write("{}\n")
    assert trainer.main([str(folder)]) == 3
    assert "checksum differs" in capsys.readouterr().err


@pytest.mark.trainer
@pytest.mark.processes
def test_fewer_prompts_than_one_generation_batch_are_refused_before_the_model_is_loaded(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    folder = builders.attempt_folder(tmp_path / "a", model=tiny_model, dataset=builders.rows(1))
    done = train(folder)
    assert done.returncode == 4
    assert "1 prompts to train on, but one generation batch takes 2" in done.stderr.splitlines()[-1]
    stages = [line["data"].get("stage") for line in builders.lines(folder / FileName.METRICS)]
    assert stages == ["importing libraries"]


@pytest.mark.trainer
@pytest.mark.processes
def test_settings_that_trl_refuses_end_two_ranks_with_one_sentence_and_code_3(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    grpo = {"per_device_train_batch_size": 3}
    folder = builders.attempt_folder(
        tmp_path / "a", model=tiny_model, grpo=grpo, hardware={"processes": 2, "strategy": "ddp"}
    )
    done = train(folder)
    assert done.returncode == 3
    assert "generation_batch_size (6) must be divisible by num_generations (4)" in done.stderr.splitlines()[-1]


def test_a_checkpoint_of_another_trl_is_refused_by_name(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "checkpoint-3"
    checkpoint.mkdir()
    (checkpoint / "trainer_state.json").write_text("{}")
    (checkpoint / FileName.VERSIONS).write_text('{"trl": "0.1.2"}')
    monkeypatch.setattr(trainer_spec, "version", lambda name: "1.13.0")
    folder = builders.attempt_folder(tmp_path / "a", model=model, resume_from=str(checkpoint))
    assert trainer.main([str(folder)]) == 3
    assert "checkpoint-3 was saved by TRL 0.1.2" in capsys.readouterr().err.splitlines()[-1]
