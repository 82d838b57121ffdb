"""Several servers live and die together with the trainer; attached ones are asked and never touched."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN
from tests.fakes.running_vllm import RunningVllm
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, Attempt, attempt
from tests.workers.supervisor.servers import free_port, server_attempt, server_hardware, vllm_command
from tests.workers.supervisor.test_gpus import Gpus
from workers.contract.run.hardware import HardwareSpec, WeightSync
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import StopMode
from workers.host import reaper
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes


def started(made: Attempt) -> dict[str, int]:
    return {line["data"]["role"]: line["data"]["pid"] for line in made.control.of_kind("process_started")}


def kill(pid: int) -> None:
    found = procfs.identity(pid)
    assert found is not None
    procfs.send(found, signal.SIGKILL)


# --- several --------------------------------------------------------------------------------------------------


def test_two_servers_start_at_once_and_all_go_at_the_end(tmp_path: Path) -> None:
    with server_attempt(tmp_path, count=2, server="slow:0.5", trainer="steps:20,pause:0.05") as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["receipt"]["port_free"] is True
        assert set(ended["exit_codes"]) == {"vllm", "vllm-2", "trainer"}
    assert list(started(made)) == ["vllm", "vllm-2", "trainer"]
    kinds = [(line["kind"], line["data"].get("phase") or line["data"].get("role")) for line in made.outbox()]
    assert kinds.index(("process_started", "vllm-2")) < kinds.index(("phase", "vllm_ready"))
    for name in ("vllm", "vllm-2"):
        assert b"Application startup complete." in made.control.logs[name]
    figures = [line["data"] for line in made.control.of_kind("vllm")]
    assert figures
    assert {"vllm/requests_running", "vllm/kv_cache_percent"} <= set(figures[-1])


def test_one_of_two_servers_that_dies_is_named_and_takes_the_run_with_it(tmp_path: Path) -> None:
    with server_attempt(tmp_path, count=2, trainer="forever,ignore_term") as made:
        made.launch()
        made.wait_for_step(2)
        kill(started(made)["vllm-2"])
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert ended["detail"].startswith("vllm-2: The vLLM server was killed by SIGKILL.")
        assert ended["receipt"]["survivors"] == []
        assert set(ended["exit_codes"]) == {"vllm", "vllm-2", "trainer"}


def test_one_of_two_servers_that_is_never_ready_is_named(tmp_path: Path) -> None:
    with server_attempt(tmp_path, count=2, server="slow:0|never_ready", ready_s=12) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_not_ready"
        assert ended["detail"].startswith("vllm-2: It didn't respond on port")
        details = [line["data"]["detail"] for line in made.control.of_kind("phase")]
        assert "1 of 2 are ready" in details
    assert made.control.of_kind("training") == []


def test_one_of_two_servers_that_dies_at_its_start_ends_the_other(tmp_path: Path) -> None:
    with server_attempt(tmp_path, count=2, server="slow:0|dies_on_start", ready_s=600) as made:
        made.launch()
        ended = made.wait_for_end()
        assert (ended["reason"], ended["exit_codes"]["vllm-2"]) == ("vllm_exited", 1)
        assert ended["detail"].startswith("vllm-2: ")


def test_a_port_for_the_weights_in_use_starts_no_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        group_port = int(taken.getsockname()[1])
        placement = Placement("testhost", cpu_slots=(0,), ports=(free_port(),), group_port=group_port)
        hardware = server_hardware(weight_sync=WeightSync.NCCL)
        with attempt(tmp_path, spec={"hardware": hardware, "placement": placement}) as made:
            made.launch()
            ended = made.wait_for_end()
            assert (ended["reason"], ended["receipt"]["port_free"]) == ("port_in_use", False)
            assert str(group_port) in ended["detail"]
    assert started(made) == {}


def test_a_reaper_tries_the_port_for_the_weights_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, attempt(tmp_path) as made:
        placement = Placement("testhost", cpu_slots=(0,), ports=(free_port(),), group_port=taken.getsockname()[1])
        reaper.reap(made.spec.run.run_id, 1, TOKEN, made.settings, to_dict(placement))
        assert made.control.reaped[0]["receipt"]["port_free"] is False


def test_a_second_port_in_use_starts_no_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = (free_port(), int(taken.getsockname()[1]))
        placement = Placement("testhost", cpu_slots=(0,), ports=ports)
        with attempt(tmp_path, spec={"hardware": server_hardware(count=2), "placement": placement}) as made:
            made.launch()
            ended = made.wait_for_end()
            assert (ended["reason"], ended["receipt"]["port_free"]) == ("port_in_use", False)
            assert str(ports[1]) in ended["detail"]
    assert started(made) == {}


def test_what_a_dead_supervisor_leaves_of_two_servers_is_reaped(tmp_path: Path) -> None:
    with server_attempt(tmp_path, count=2, trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        made.kill_supervisor()
        assert reaper.reap(made.spec.run.run_id, 1, TOKEN, made.settings)
        receipt = made.control.reaped[0]["receipt"]
        assert (receipt["survivors"], receipt["port_free"], receipt["free"]) == ([], True, True)
        assert receipt["processes_ended"] >= 5  # two fronts, two engines, the trainer


# --- sharing the trainer's GPU --------------------------------------------------------------------------------


def test_a_server_on_the_trainers_gpu_is_proved_free_with_it_once(tmp_path: Path) -> None:
    gpus = Gpus(tmp_path / "gpus.json", {0: 100, 1: 500})
    port = free_port()
    spec = {
        "hardware": replace(server_hardware(gpus=1, shared=True), trainer_gpus=1),
        "placement": Placement("testhost", gpus=(1,), ports=(port,)),
    }
    supervisor = (sys.executable, str(FAKES / "supervisor_with_gpus.py"), str(gpus.file))
    settings: dict[str, Any] = {"supervisor_command": supervisor, "vllm_command": vllm_command()}
    with attempt(tmp_path, trainer="forever", spec=spec, **settings) as made:
        made.launch()
        made.wait_for_step(2)
        server = Path(f"/proc/{started(made)['vllm']}/environ").read_bytes()
        assert b"CUDA_VISIBLE_DEVICES=1\0" in server
        assert made.trainer_environment()["CUDA_VISIBLE_DEVICES"] == "1"
        gpus.use({0: 100, 1: 60_000})
        memory = "gpu/1/memory_mib"
        wait_until(lambda: any(s["data"].get(memory) == 60_000 for s in made.control.of_kind("system")), made.why)
        made.ask_to_stop(StopMode.NOW)
        wait_until(lambda: "verifying" in made.control.phases(), made.why)
        gpus.use({0: 100, 1: 600})
        receipt = made.wait_for_end()["receipt"]
        assert [(gpu["gpu"], gpu["peak_mib"]) for gpu in receipt["gpus"]] == [("1", 60_000)]
        assert receipt["free"] is True


# --- attached -------------------------------------------------------------------------------------------------


@contextmanager
def attached_attempt(
    tmp_path: Path, *addresses: str, trainer: str, ready_s: int = 30, **more: Any
) -> Iterator[Attempt]:
    hardware = server_hardware(attached=addresses, ready_timeout_s=ready_s)
    with attempt(tmp_path, trainer=trainer, spec={"hardware": hardware}, **more) as made:
        yield made


def test_an_attached_server_is_asked_and_never_touched(tmp_path: Path) -> None:
    with RunningVllm(name="somebody's", FAKE_VLLM="slow:0.5") as theirs:
        with attached_attempt(tmp_path, theirs.url, trainer=f"connect:{theirs.port}") as made:
            made.launch()
            ended = made.wait_for_end()
            assert ended["reason"] == "completed"
            assert (ended["receipt"]["port_free"], ended["receipt"]["free"]) == (None, True)
            assert ended["exit_codes"] == {"trainer": 0}
        assert theirs.get("/health") == 200
        assert theirs.front.poll() is None
    (note,) = [
        n["data"] for n in made.control.of_kind("note") if "neither starts nor stops that server" in n["data"]["text"]
    ]
    assert note["level"] == "warning"
    assert theirs.url in note["text"]
    phases = made.control.phases()
    assert phases.index("vllm_ready") < phases.index("trainer_starting")


def test_an_attached_server_that_is_away_is_named_with_its_address(tmp_path: Path) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with attached_attempt(tmp_path, address, trainer="forever", ready_s=1) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_not_ready"
        assert ended["detail"].startswith(f"{address}: It didn't respond")
    assert set(started(made)) == {"trainer"}


def test_an_attached_server_that_dies_ends_a_trainer_that_waits_for_it(tmp_path: Path) -> None:
    quick = {"attached_watch_s": 0.1, "attached_silence_s": 0.5}
    with (
        RunningVllm() as theirs,
        attached_attempt(tmp_path, theirs.url, trainer="forever,ignore_term", **quick) as made,
    ):
        made.launch()
        made.wait_for_step(2)
        theirs.front.kill()
        ended = made.wait_for_end()
        assert ended["reason"] == "vllm_exited"
        assert f"The attached vLLM server {theirs.url} is no longer responding." in ended["detail"]
        assert ended["receipt"]["survivors"] == []


def test_a_trainer_that_crashes_because_an_attached_server_died_is_not_blamed(tmp_path: Path) -> None:
    with RunningVllm() as theirs:
        trainer = f"forever,connect:{theirs.port}"
        with attached_attempt(tmp_path, theirs.url, trainer=trainer, attached_watch_s=600, settle_s=10) as made:
            made.launch()
            made.wait_for_step(2)
            theirs.front.kill()
            ended = made.wait_for_end()
            assert ended["reason"] == "vllm_exited"
            assert ended["exit_codes"] == {"trainer": 1}


def test_a_trainer_that_crashes_beside_a_healthy_attached_server_is_the_reason(tmp_path: Path) -> None:
    with RunningVllm() as theirs, attached_attempt(tmp_path, theirs.url, trainer="steps:2,crash:1") as made:
        made.launch()
        assert made.wait_for_end()["reason"] == "trainer_exited"


# --- specs that describe nothing that may be started ----------------------------------------------------------


@pytest.mark.parametrize(
    ("hardware", "placement", "says"),
    [
        (HardwareSpec("CPU", environment={"LD_PRELOAD": "/x.so"}), Placement("testhost"), "LD_PRELOAD can't be set"),
        (HardwareSpec("CPU", environment={"NCCL_DEBUG": "a b"}), Placement("testhost"), "NCCL_DEBUG can't be 'a b'"),
        (server_hardware(attached=("file:///etc",)), Placement("testhost"), "'file:///etc' is not an address"),
        (server_hardware(attached=("http://h:99999",)), Placement("testhost"), "'http://h:99999' is not an address"),
        (server_hardware(count=2), Placement("testhost", ports=(21_000,)), "1 for 2 vLLM servers"),
        (server_hardware(count=9), Placement("testhost", ports=tuple(range(21_000, 21_009))), "at most 8"),
        (
            server_hardware(count=2, gpus=1, shared=True, weight_sync=WeightSync.LORA),
            Placement("testhost", gpus=(0,), ports=(21_000, 21_001)),
            "vllm-2 needs 1 GPU but gets 0",
        ),
    ],
)
def test_a_spec_that_the_host_does_not_allow_starts_nothing(
    tmp_path: Path, hardware: HardwareSpec, placement: Placement, says: str
) -> None:
    with attempt(tmp_path, spec={"hardware": hardware, "placement": placement}) as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "spec_refused"
        assert says in ended["detail"]
    assert started(made) == {}


def test_a_profiles_variables_reach_the_trainer_and_its_server(tmp_path: Path) -> None:
    port = free_port()
    hardware = replace(server_hardware(), environment={"NCCL_DEBUG": "WARN"})
    spec = {"hardware": hardware, "placement": Placement("testhost", cpu_slots=(0,), ports=(port,))}
    with attempt(tmp_path, spec=spec, trainer="forever", vllm_command=vllm_command()) as made:
        made.launch(NCCL_DEBUG="INFO", NVSHMEM_DEBUG="INFO")
        made.wait_for_step(1)
        server = Path(f"/proc/{started(made)['vllm']}/environ").read_bytes().split(b"\0")
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
    assert b"NCCL_DEBUG=WARN" in server
    assert b"NVSHMEM_DEBUG=INFO" in server
    assert made.trainer_environment()["NCCL_DEBUG"] == "WARN"
