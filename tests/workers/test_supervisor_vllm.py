"""Server mode: the pair lives and dies together, behind a gate that only this attempt's server opens."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.workers.attempts import FAKES, Attempt, attempt, wait_until
from workers.contract import HardwareSpec, Placement, Rollout, ServerSpec, StopMode, WeightSync
from workers.supervisor import proc, vllm

pytestmark = pytest.mark.processes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextmanager
def server_attempt(
    tmp_path: Path, *, server: str = "", trainer: str = "", ready_s: int = 30, port: int = 0, **settings: Any
) -> Iterator[Attempt]:
    port = port or free_port()
    words = (
        "/usr/bin/env",
        f"FAKE_VLLM={server}",
        "FAKE_VLLM_LIFETIME=120",
        sys.executable,
        str(FAKES / "fake_vllm.py"),
    )
    hardware = HardwareSpec(
        "server",
        rollout=Rollout.SERVER,
        cpu_slots=1,
        server=ServerSpec(gpus=0, ready_timeout_s=ready_s, weight_sync=WeightSync.LORA),
    )
    spec = {"hardware": hardware, "placement": Placement("testhost", cpu_slots=(0,), ports=(port,))}
    with attempt(tmp_path, trainer=trainer or f"connect:{port}", spec=spec, vllm_command=words, **settings) as made:
        yield made
    assert vllm.port_is_free(port)


def test_the_trainer_starts_when_the_server_is_ready_and_both_go_at_the_end(tmp_path: Path) -> None:
    with server_attempt(tmp_path) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["receipt"]["port_free"] is True
        assert ended["receipt"]["processes_ended"] >= 2
        phases = made.control.phases()
        assert phases.index("vllm_ready") < phases.index("trainer_starting")
        assert [line["data"]["role"] for line in made.control.of_kind("process_started")] == ["vllm", "trainer"]
    assert b"Application startup complete." in made.control.logs["vllm"]


def test_the_servers_own_figures_are_reported(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="steps:20,pause:0.05") as made:
        made.launch()
        made.wait_for_end()
        names = {name for line in made.control.of_kind("vllm") for name in line["data"]}
        assert "vllm/requests_running" in names


def test_a_server_that_is_never_ready_ends_at_its_deadline(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="never_ready", ready_s=1) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_not_ready"
        assert "did not answer on port" in ended["detail"]
        assert len(made.control.of_kind("process_started")) == 1


def test_a_server_that_dies_at_its_start_is_named_at_once(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="dies_on_start", ready_s=600) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["exit_codes"]["vllm"] == 1


def test_a_server_that_dies_takes_a_waiting_trainer_with_it(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="dies_after:1", trainer="forever,ignore_term") as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["exit_codes"] == {"trainer": 137, "vllm": 1}


def test_a_trainer_that_crashes_because_its_server_died_is_not_blamed(tmp_path: Path) -> None:
    port = free_port()
    with server_attempt(tmp_path, trainer=f"forever,connect:{port}", port=port, settle_s=5) as made:
        made.launch()
        made.wait_for_step(2)
        front = made.control.of_kind("process_started")[0]["data"]["pid"]
        found = proc.identity(front)
        assert found is not None
        proc.send(found, signal.SIGKILL)
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["receipt"]["survivors"] == []


def test_a_stop_after_the_trainers_crash_keeps_its_reason_and_does_not_wait_for_the_server(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="steps:2,crash:1", settle_s=600) as made:
        made.launch()
        wait_until(lambda: made.control.of_kind("process_exited"), made.why)
        made.ask_to_stop(StopMode.SAVE)
        assert made.wait_for_end()["reason"] == "trainer_exited"


def test_another_server_on_the_port_is_not_taken_for_ours(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="wrong_name", ready_s=2) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_not_ready"
        assert "Another server answers" in ended["detail"]


def test_a_port_in_use_is_told_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = int(taken.getsockname()[1])
        spec = {
            "hardware": HardwareSpec("server", rollout=Rollout.SERVER, server=ServerSpec(gpus=0)),
            "placement": Placement("testhost", ports=(port,)),
        }
        with attempt(tmp_path, spec=spec) as made:
            made.launch()
            ended = made.wait_for_end()
            assert ended["reason"] == "port_in_use"
            assert str(port) in ended["detail"]
            assert made.control.of_kind("process_started") == []


def test_an_engine_that_ignores_sigterm_and_an_orphaned_worker_go_at_a_stop(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="ignores_sigterm,leaves_orphan", trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.NOW)
        receipt = made.wait_for_end()["receipt"]
        assert receipt["survivors"] == []
        assert receipt["orphans_found"] >= 2
        assert receipt["port_free"] is True


def test_the_proof_needs_the_listening_process_in_our_tree() -> None:
    with socket.create_server(("127.0.0.1", 0)) as mine:
        from workers.supervisor.process import is_listening

        port = int(mine.getsockname()[1])
        import os

        assert is_listening(port, {os.getpid()})
        assert not is_listening(port, {os.getppid()})
        assert not is_listening(free_port(), {os.getpid()})


@pytest.mark.parametrize(
    ("weight_sync", "opened"),
    [(WeightSync.NCCL, "VLLM_SERVER_DEV_MODE"), (WeightSync.LORA, "VLLM_ALLOW_RUNTIME_LORA_UPDATING")],
)
def test_a_server_opens_only_the_routes_that_its_weight_updates_need(
    tmp_path: Path, weight_sync: WeightSync, opened: str
) -> None:
    hardware = HardwareSpec("server", rollout=Rollout.SERVER, server=ServerSpec(weight_sync=weight_sync))
    with attempt(tmp_path, spec={"hardware": hardware, "placement": Placement("testhost", ports=(1,))}) as made:
        assert vllm.environment(made.spec) == {opened: "1", "VLLM_NO_USAGE_STATS": "1"}


def test_the_figures_of_prometheus_are_summed_over_their_labels() -> None:
    text = '# HELP x\nvllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 3.0\nup 1\n'
    assert vllm.prometheus_totals(text) == {"vllm:num_requests_running": 5.0, "up": 1.0}
    assert json.dumps(vllm.prometheus_totals("garbage\n{}\n")) == "{}"
