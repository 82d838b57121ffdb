"""A learnability check with real TRL: the run's first steps, and no weight has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.trainer import builders
from tests.trainer.conftest import Train
from tests.trainer.test_training import of_kind
from workers.contract.run.learnability import CHECK
from workers.contract.wire.names import FileName

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

GRPO = {"per_device_train_batch_size": 32, "num_generations": 2, "num_iterations": 2, "max_steps": 1000}


def sampled(folder: Path) -> list[Any]:
    return [
        (group["step"], group["row"], [one["text"] for one in group["completions"]])
        for group in builders.lines(folder / FileName.SAMPLES)
    ]


def test_a_check_ends_by_itself_with_the_starting_model_s_completions(
    tiny_model: Path, tmp_path: Path, train: Train
) -> None:
    folders = [
        builders.attempt_folder(tmp_path / name, model=tiny_model, grpo=GRPO, run={"kind": CHECK}) for name in "ab"
    ]
    for folder in folders:
        done = train(folder)
        assert done.returncode == 0, done.stderr[-2000:]
    first, again = map(sampled, folders)
    assert first == again  # the same seed gives the same numbers
    assert len(first) == 64
    (training,) = of_kind(folders[0], "training")
    assert training["data"]["max_steps"] == 8
    # With two updates on each generation a policy that had moved would show a ratio other than 1.
    assert {values["mean_ratio"] for values in builders.logs(folders[0]).values()} == {1.0}
    assert of_kind(folders[0], "checkpoint") == []
    timed = {name for line in of_kind(folders[0], "train") for name in line["data"] if name.startswith("time/rewards/")}
    assert timed == {f"time/rewards/{reward.name}_s" for reward in builders.REWARDS}
