"""Server mode: the pair lives and dies together, behind a gate that only this attempt's server opens."""

from __future__ import annotations

import json
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes.fake_control import FakeControl
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt, build_settings, build_spec
from tests.workers.supervisor.servers import free_port, server_attempt, server_hardware
from workers.contract.run.hardware import HardwareSpec, Rollout, ServerSpec, WeightSync
from workers.contract.run.spec import Placement, servers_of
from workers.contract.wire.names import StopMode
from workers.supervisor import commands
from workers.supervisor.processes import procfs
from workers.supervisor.processes.listening import is_listening
from workers.supervisor.servers import servermetrics

pytestmark = pytest.mark.processes


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


def test_the_trainer_starts_beside_its_server_and_awaits_it(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="slow:2") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        (started,) = [line for line in made.control.of_kind("process_started") if line["data"]["role"] == "trainer"]
        (ready,) = [line for line in made.control.of_kind("phase") if line["data"]["phase"] == "vllm_ready"]
        (training,) = made.control.of_kind("training")
    assert started["seq"] < ready["seq"] < training["seq"]


def test_a_trainer_that_refuses_the_spec_does_not_wait_for_its_server(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="never_ready", trainer="refuse", ready_s=600) as made:
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], ended["detail"]) == ("spec_refused", "num_generations must be at least 2.")


def test_a_host_may_start_the_trainer_after_its_server(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="never_ready", ready_s=1, side_by_side=False) as made:
        made.launch()
        assert made.wait_for_end()["exit_codes"].keys() == {"vllm"}  # a trainer beside it would have a code too


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
        assert "didn't respond on port" in ended["detail"]
        assert set(ended["exit_codes"]) == {"vllm", "trainer"}
        assert made.control.of_kind("training") == []


def test_a_server_that_dies_at_its_start_is_named_at_once(tmp_path: Path) -> None:
    with server_attempt(tmp_path, server="dies_on_start", ready_s=600) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["exit_codes"]["vllm"] == 1


def test_a_server_that_dies_takes_a_waiting_trainer_with_it(tmp_path: Path) -> None:
    with server_attempt(tmp_path, trainer="forever,ignore_term") as made:
        made.launch()
        made.wait_for_step(1)
        front = made.control.of_kind("process_started")[0]["data"]["pid"]
        (engine,) = [row.identity for row in procfs.table() if row.ppid == front]
        procfs.send(engine, signal.SIGKILL)
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["exit_codes"] == {"trainer": 137, "vllm": 1}


def test_a_trainer_that_crashes_because_its_server_died_is_not_blamed(tmp_path: Path) -> None:
    port = free_port()
    with server_attempt(tmp_path, trainer=f"forever,connect:{port}", port=port, settle_s=5) as made:
        made.launch()
        made.wait_for_step(2)
        front = made.control.of_kind("process_started")[0]["data"]["pid"]
        found = procfs.identity(front)
        assert found is not None
        procfs.send(found, signal.SIGKILL)
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
    with server_attempt(tmp_path, server="wrong_name", ready_s=12) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_not_ready"
        assert "Another server is responding" in ended["detail"]


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
        port = int(mine.getsockname()[1])
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
    control = FakeControl()
    hardware = server_hardware(weight_sync=weight_sync)
    hardware = replace(hardware, environment={"NCCL_DEBUG": "INFO"})
    spec = build_spec(control, hardware=hardware, model="/m", placement=Placement("testhost", ports=(1,)))
    (place,) = servers_of(spec)
    host = {
        "PATH": "/bin",
        "HF_TOKEN": "hf_x",
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "NVSHMEM_DEBUG": "INFO",
        "REDIS_URL": "r",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_PORT": "tcp://10.0.0.1:80",
    }
    made = commands.server_environment(spec, build_settings(tmp_path, control), host, place)
    routes = {name for name in made if name in ("VLLM_SERVER_DEV_MODE", "VLLM_ALLOW_RUNTIME_LORA_UPDATING")}
    assert routes == {opened}
    passed = {"NCCL_DEBUG": "INFO", "TORCH_CUDA_ARCH_LIST": "9.0", "NVSHMEM_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": ""}
    assert passed.items() <= made.items()
    assert not {"HF_TOKEN", "REDIS_URL", "HF_HUB_OFFLINE", "VLLM_PORT"} & set(made)


def test_the_figures_of_prometheus_are_summed_over_their_labels() -> None:
    text = '# HELP x\nvllm:num_requests_running{engine="0"} 2.0\nvllm:num_requests_running{engine="1"} 3.0\nup 1\n'
    assert servermetrics.prometheus(text)[0] == {"vllm:num_requests_running": 5.0, "up": 1.0}
    assert json.dumps(servermetrics.prometheus("garbage\n{}\n")[0]) == "{}"


def test_the_figures_of_several_servers_are_those_of_one() -> None:
    one = {"vllm/requests_running": 3.0, "vllm/kv_cache_percent": 20.0, "vllm/generated_tokens_per_s": 100.0}
    other = {"vllm/requests_running": 1.0, "vllm/kv_cache_percent": 40.0}
    assert servermetrics.combine([one, other]) == {"vllm/requests_running": 4.0, "vllm/kv_cache_percent": 30.0}
    assert servermetrics.combine([]) == {}
