"""The whole road of server mode: a real supervisor, real TRL, and a server that samples from the policy it is sent."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.datasets import parquet
from tests.fakes.fake_control import FakeControl
from tests.trainer import builders
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, RUN, Attempt, build_settings
from tests.workers.supervisor.servers import free_port
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import (
    AttemptSpec,
    DataSpec,
    LoraSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
)
from workers.contract.wire.names import StopMode
from workers.supervisor.processes import procfs
from workers.supervisor.processes.listening import port_is_free

pytestmark = [pytest.mark.trainer, pytest.mark.processes]

DATASET = parquet(builders.rows(8))
HARDWARE = HardwareSpec(
    "server on the CPU",
    rollout=Rollout.SERVER,
    cpu_slots=1,
    threads=1,
    server=ServerSpec(gpus=0, ready_timeout_s=200, request_timeout_s=60, weight_sync=WeightSync.LORA),
)
GRPO = {"learning_rate": 1e-2, "per_device_train_batch_size": 8, "num_generations": 4, "max_completion_length": 12}
GRPO |= {"beta": 0.02, "num_iterations": 2, "lr_scheduler_type": "constant", "seed": 7}


@contextmanager
def pair(tmp_path: Path, *, python: Path, model: Path, engine: str, max_steps: int) -> Iterator[Attempt]:
    """Supervisor, server and trainer of one attempt; none of their processes is left, and the port is free."""
    control, port = FakeControl(DATASET).start(), free_port()
    interpreter = python if engine == "torch" else sys.executable
    words = ("/usr/bin/env", f"FAKE_VLLM_ENGINE={engine}", "FAKE_VLLM_LIFETIME=380", str(interpreter))
    settings = build_settings(
        tmp_path / "runs",
        control,
        trainer_command=(),
        trainer_python=str(python),
        model_roots=(model.parent,),
        vllm_command=(*words, str(FAKES / "fake_vllm.py")),
        settle_s=5.0,
        save_deadline_s=60.0,
    )
    run = RunSpec(
        run_id=RUN,
        name="a run",
        kind="train",
        model=ModelSpec(str(model)),
        data=DataSpec("sums", 1, control.sha256, 8),
        rewards=(RewardSpec("variety", "unique_chars"),),
        hardware=HARDWARE,
        grpo={**GRPO, "max_steps": max_steps},
        lora=LoraSpec(r=8),
    )
    made = Attempt(
        control, settings, AttemptSpec(f"{RUN}-1", 1, 1, run, Placement("testhost", cpu_slots=(0,), ports=(port,)))
    )
    try:
        made.launch()
        yield made
        made.wait_until_gone()
        assert port_is_free(port)
    finally:
        made.kill_leftovers()
        control.close()


def wait_for_step(made: Attempt, step: int) -> None:
    wait_until(lambda: step in made.control.train_steps() or made.control.ended, made.why)
    assert made.control.ended is None, made.why()


def training(made: Attempt) -> dict[int, dict[str, Any]]:
    return {line["step"]: line["data"] for line in made.control.of_kind("train") if "loss" in line["data"]}


@pytest.mark.telling
def test_a_run_trains_on_the_server_and_leaves_nothing(tmp_path: Path, trainer_python: Path, tiny_model: Path) -> None:
    with pair(tmp_path, python=trainer_python, model=tiny_model, engine="torch", max_steps=4) as made:
        ended = made.wait_for_end()
        assert ended["reason"] == "completed", made.why()
        receipt = ended["receipt"]
        assert (receipt["survivors"], receipt["port_free"], receipt["free"]) == ([], True, True)
    steps = training(made)
    assert sorted(steps) == [1, 2, 3, 4]
    for fresh in (steps[1], steps[3]):
        assert fresh["sampling/importance_sampling_ratio/mean"] == pytest.approx(1.0, abs=1e-3)
        assert fresh["sampling/sampling_logp_difference/max"] < 1e-4
    assert steps[3]["kl"] > 1e-3
    assert re.findall(r"Generated \d+ sequences with model '(.+)'", made.log("vllm")) == ["policy-v1", "policy-v2"]
    words = "On each of its GPUs vLLM uses 0.5 GiB of weights, 1.82 GiB of KV cache for 34,112 tokens."
    assert words in [line["data"]["text"] for line in made.control.of_kind("note")]
    assert len(made.control.samples) == 4
    assert made.control.of_kind("checkpoint")[-1]["step"] == 4
    assert list(made.control.lines.values()) == made.outbox()


def test_a_stop_with_save_ends_the_pair_at_a_checkpoint_from_which_it_goes_on(
    tmp_path: Path, trainer_python: Path, tiny_model: Path
) -> None:
    with pair(tmp_path, python=trainer_python, model=tiny_model, engine="stub", max_steps=100_000) as made:
        wait_for_step(made, 2)
        made.ask_to_stop(StopMode.SAVE)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user", made.why()
        assert ended["exit_codes"]["trainer"] == 0
        saved = made.control.of_kind("checkpoint")[-1]
        assert (made.folder / saved["data"]["path"] / "adapter_model.safetensors").is_file()
        assert ended["receipt"]["survivors"] == []
        made.wait_until_gone()
        goes_on(made, saved["data"]["path"], after=saved["step"])


def goes_on(first: Attempt, checkpoint: str, *, after: int) -> None:
    """A second attempt passes the host's checks of the checkpoint and trains the next step."""
    spec = replace(first.spec, attempt_id=f"{RUN}-2", number=2, first_seq=len(first.control.lines) + 1)
    again = Attempt(first.control, first.settings, replace(spec, resume_from=f"{RUN}/1/{checkpoint}"))
    try:
        again.launch()
        wait_until(lambda: after + 1 in training(again) or not again.lock_is_held(), again.why)
        assert after + 1 in training(again), again.why()
        again.ask_to_stop(StopMode.NOW)
        again.wait_until_gone()
    finally:
        again.kill_leftovers()


def test_a_server_that_dies_in_training_is_the_reason_and_the_trainer_goes_too(
    tmp_path: Path, trainer_python: Path, tiny_model: Path
) -> None:
    with pair(tmp_path, python=trainer_python, model=tiny_model, engine="stub", max_steps=100_000) as made:
        wait_for_step(made, 2)
        front = procfs.identity(made.control.of_kind("process_started")[0]["data"]["pid"])
        assert front is not None
        procfs.send(front, procfs.signal.SIGKILL)
        ended = made.wait_for_end()
    assert ended["reason"] == "vllm_exited", made.why()
    assert ended["receipt"]["survivors"] == []
    assert ended["receipt"]["orphans_found"] >= 1  # the engine, which its front's death leaves behind
