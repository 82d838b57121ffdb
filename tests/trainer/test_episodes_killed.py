"""A run that is stopped in the middle of a tool call: nothing of the tool is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.datasets import parquet
from tests.fakes.fake_control import FakeControl
from tests.trainer.test_episodes import GRPO, chats
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, build_settings, of_process
from workers.contract.run.episodes import EpisodeLimits, EpisodeSpec, PartSpec
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import AttemptSpec, DataSpec, ModelSpec, Placement, RewardSpec, RunSpec
from workers.contract.wire.names import StopMode

pytestmark = [pytest.mark.trainer, pytest.mark.processes]


def blocked_attempt(tmp_path: Path, *, python: Path, model: Path) -> Attempt:
    control = FakeControl(parquet(chats())).start()
    command = ("/usr/bin/env", f"PYTHONPATH={ROOT}", str(python), "-m", "tests.trainer.playing")
    settings = build_settings(
        tmp_path / "runs", control, trainer_command=command, model_roots=(model.parent,), settle_s=5.0
    )
    limits = EpisodeLimits(call_s=600.0)
    run = RunSpec(
        run_id=RUN,
        name="a run",
        kind="train",
        model=ModelSpec(str(model)),
        data=DataSpec("sums", 1, control.sha256, len(chats())),
        rewards=(RewardSpec("variety", "unique_chars"),),
        hardware=HardwareSpec("CPU", cpu_slots=1, threads=1),
        grpo={**GRPO, "temperature": 0.01, "per_device_train_batch_size": 4, "num_generations": 4},
        episodes=EpisodeSpec("a room", 1, (PartSpec("calc", "blocking"),), limits),
    )
    return Attempt(control, settings, AttemptSpec(f"{RUN}-1", 1, 1, run, Placement("testhost", cpu_slots=(0,))))


def programs(made: Attempt) -> list[int]:
    """What the tool has started, in sessions of their own."""
    return [pid for pid in made.processes() if of_process(pid, "cmdline").startswith(b"sleep\0")]


def test_a_stop_in_the_middle_of_a_call_leaves_no_process_of_the_tool(
    calling_model: Path, trainer_python: Path, tmp_path: Path
) -> None:
    made = blocked_attempt(tmp_path, python=trainer_python, model=calling_model)
    try:
        made.launch()
        wait_until(lambda: len(programs(made)) == 4 or made.control.ended, made.why)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert ended["receipt"]["survivors"] == []
        made.wait_until_gone()
        assert programs(made) == []
    finally:
        made.kill_leftovers()
        made.control.close()
