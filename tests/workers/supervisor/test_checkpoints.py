"""Checkpoints that can't be resumed from are found before anything is started, by the name of the file."""

from __future__ import annotations

import json
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from workers.contract.run.hardware import HardwareSpec, Strategy
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    LoraSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
)
from workers.contract.wire.names import EndReason
from workers.settings import HostSettings
from workers.supervisor.claim import PathRefused, end_for, prepare
from workers.supervisor.inputs import checkpoints
from workers.supervisor.inputs.checkpoints import CheckpointError

RUN = RunSpec(
    run_id="r1",
    name="a test",
    kind="train",
    model=ModelSpec("/models/tiny"),
    data=DataSpec("sums", 1, "0" * 64, 10),
    rewards=(RewardSpec("tags", "think_tags"),),
    hardware=HardwareSpec("cpu"),
    grpo={},
)
LORA = replace(RUN, lora=LoraSpec(r=8, target_modules=("q_proj",)))
ADAPTER = {"r": 8, "target_modules": ["q_proj"], "base_model_name_or_path": "/elsewhere/tiny"}


def tensors(path: Path) -> None:
    header = json.dumps({"weight": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))


def archive(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data.pkl", "x" * 1000)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    folder = tmp_path / "checkpoint-4"
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 4}))
    (folder / "adapter_config.json").write_text(json.dumps(ADAPTER))
    for name in ("model.safetensors", "adapter_model.safetensors"):
        tensors(folder / name)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        archive(folder / name)
    return folder


@pytest.mark.parametrize("run", [RUN, LORA])
def test_a_whole_checkpoint_of_the_run_is_accepted(saved: Path, run: RunSpec) -> None:
    checkpoints.check(saved, run)


NEEDED = ["trainer_state.json", "model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth"]
OF_LORA = ["adapter_model.safetensors", "adapter_config.json"]


@pytest.mark.parametrize("name", NEEDED + OF_LORA)
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    (saved / name).unlink()
    with pytest.raises(CheckpointError, match=f"checkpoint-4/{name} is missing"):
        checkpoints.check(saved, LORA if name in OF_LORA else RUN)


@pytest.mark.parametrize("name", NEEDED + OF_LORA)
@pytest.mark.parametrize("share", [0, 0.02, 0.9])
def test_a_cut_file_is_named(saved: Path, name: str, share: float) -> None:
    content = (saved / name).read_bytes()
    (saved / name).write_bytes(content[: int(len(content) * share)])
    with pytest.raises(CheckpointError, match=name.replace(".", r"\.")):
        checkpoints.check(saved, LORA if name in OF_LORA else RUN)


def test_a_checkpoint_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint-9 is not on this host"):
        checkpoints.check(tmp_path / "checkpoint-9", RUN)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"r": 16}, "has LoRA rank 16, but the run has 8"),
        ({"target_modules": ["q_proj", "v_proj"]}, "on different modules"),
        ({"base_model_name_or_path": "/models/other"}, "belongs to the model /models/other"),
    ],
)
def test_an_adapter_of_another_run_is_refused(saved: Path, config: dict[str, Any], words: str) -> None:
    (saved / "adapter_config.json").write_text(json.dumps(ADAPTER | config))
    with pytest.raises(CheckpointError, match=words):
        checkpoints.check(saved, LORA)


def test_the_state_must_be_of_the_folders_step(saved: Path) -> None:
    (saved / "trainer_state.json").write_text(json.dumps({"global_step": 3}))
    with pytest.raises(CheckpointError, match=r"trainer_state\.json belongs to step 3"):
        checkpoints.check(saved, RUN)


def test_another_number_of_ranks_is_refused(saved: Path) -> None:
    two = replace(RUN, hardware=replace(RUN.hardware, processes=2, strategy=Strategy.ZERO2))
    for rank in (0, 1):
        archive(saved / f"rng_state_{rank}.pth")
    archive(saved / "global_step4/zero_pp_rank_0_mp_rank_00_optim_states.pt")
    with pytest.raises(CheckpointError, match="state of 1 rank, but the run has 2"):
        checkpoints.check(saved, two)
    archive(saved / "global_step4/zero_pp_rank_1_mp_rank_00_optim_states.pt")
    checkpoints.check(saved, two)


def test_to_start_with_its_weights_a_run_needs_no_optimizer(saved: Path) -> None:
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):
        (saved / name).unlink()
    checkpoints.check_weights(saved, RUN)
    (saved / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        checkpoints.check_weights(saved, RUN)


@pytest.mark.parametrize(
    ("start_from", "words"), [("r0/1/checkpoints/checkpoint-4", "not on this host"), ("../r0", "not inside")]
)
def test_a_run_that_is_to_start_from_a_missing_checkpoint_is_refused(
    tmp_path: Path, start_from: str, words: str
) -> None:
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    (tmp_path / "r0").mkdir()
    run = replace(RUN, model=ModelSpec("owner/model"), start_from=start_from)
    spec = AttemptSpec("r1-1", 1, 1, run, Placement("box"))
    settings = HostSettings(runs_dir=runs_dir, control_url="http://127.0.0.1:1", trainer_python="python")
    with pytest.raises(PathRefused, match=words):
        prepare(spec, settings, control=None, folder=None)  # type: ignore[arg-type]  # it comes no further


def test_a_missing_checkpoint_to_resume_from_is_named_so_that_the_next_resume_takes_another(tmp_path: Path) -> None:
    missing = str(tmp_path / "r1/1/checkpoints/checkpoint-4")
    run = replace(RUN, model=ModelSpec("owner/model"))
    spec = AttemptSpec("r1-2", 2, 1, run, Placement("box"), resume_from=missing)
    settings = HostSettings(runs_dir=tmp_path, control_url="http://127.0.0.1:1", trainer_python="python")
    with pytest.raises(CheckpointError, match="checkpoint-4 is not on this host"):
        prepare(spec, settings, control=None, folder=None)  # type: ignore[arg-type]  # it comes no further


def test_the_attempt_ends_with_a_reason_of_its_own() -> None:
    end = end_for(CheckpointError("checkpoint-4/optimizer.pt is missing."))
    assert (end.reason, end.detail) == (EndReason.CHECKPOINT_UNUSABLE, "checkpoint-4/optimizer.pt is missing.")
