"""A warm server: it outlives the run that used it, forgets its adapters, and ends on its own."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, attempt, build_spec, of_process
from tests.workers.supervisor.servers import free_port, server_hardware, vllm_command
from workers.contract.run.spec import LoraSpec, Placement, WarmPlace
from workers.contract.stack.warm import spec_of
from workers.contract.wire.names import StopMode
from workers.host.launcher import Launch
from workers.supervisor.processes.listening import port_is_free

pytestmark = pytest.mark.processes

SERVER = "rwarmserver"
HARDWARE = server_hardware(keep_warm_minutes=15)


def get(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as answer:
        text = answer.read().decode()
    return json.loads(text) if text.startswith("{") else text


def models(port: int) -> list[str]:
    return [model["id"] for model in get(port, "/v1/models")["data"]]


@contextmanager
def warm_server(
    tmp_path: Path, *, server: str = "", late: bool = False, **settings: Any
) -> Iterator[tuple[Attempt, int]]:
    """`late`: its program begins when there is a file `begin`."""
    port = free_port()
    begin = f"while [ ! -e {tmp_path}/begin ]; do sleep 0.05; done" if late else ":"
    command = ("/bin/sh", "-c", f'{begin}; exec "$0" -m workers.trainer "$@"', sys.executable)
    with attempt(tmp_path / "lease", trainer_command=command, vllm_command=vllm_command(server), **settings) as made:
        made.settings = replace(made.settings, runs_dir=tmp_path / "runs", model_roots=(tmp_path / "models",))
        model = tmp_path / "models" / "tiny"
        model.mkdir(parents=True)
        (model / "config.json").write_text("{}")
        spec = build_spec(made.control, model=model, hardware=HARDWARE)
        run = spec_of(replace(spec.run, lora=LoraSpec(r=8)), SERVER)
        made.use(replace(spec, attempt_id=f"{SERVER}-1", run=run, placement=Placement("testhost", ports=(port,))))
        made.folder = made.folder.of(made.settings.runs_dir, SERVER, 1)
        yield made, port
    assert port_is_free(port)


@contextmanager
def using(tmp_path: Path, port: int, *, trainer: str, **settings: Any) -> Iterator[Attempt]:
    placement = Placement("testhost", cpu_slots=(0,), warm=WarmPlace(f"{SERVER}-1", (port,)))
    spec = {"hardware": HARDWARE, "placement": placement}
    with attempt(tmp_path, trainer=trainer, spec=spec, **settings) as made:
        yield made


def ready(lease: Attempt) -> None:
    wait_until(lambda: lease.control.of_kind("training"), lease.why)


def nobody_can_change_the_base(lease: Attempt) -> None:
    roles = {line["data"]["role"]: line["data"]["pid"] for line in lease.control.of_kind("process_started")}
    command, environment = (of_process(roles["vllm"], what) for what in ("cmdline", "environ"))
    assert b"--enable-lora" in command
    assert b"--weight-transfer-config" not in command
    assert b"VLLM_SERVER_DEV_MODE" not in environment
    assert b"secret" not in environment


@pytest.mark.parametrize("late", [False, True], ids=["in time", "after the run"])
def test_it_outlives_a_killed_run_forgets_its_adapters_and_ends_when_it_is_told(tmp_path: Path, late: bool) -> None:
    with warm_server(tmp_path, late=late) as (lease, port):
        lease.control.warm = {"user": "rtestrun22-1", "leave": ""}
        lease.control.secrets = {"HF_TOKEN": "hf-secret", "GRPO_SECRET_JUDGE": "judge-secret"}
        lease.launch()
        with using(tmp_path, port, trainer=f"forever,connect:{port}") as run:
            run.launch()  # at once: it waits for a server that is still starting
            run.wait_for_step(2)
            nobody_can_change_the_base(lease)
            adapter = tmp_path / "rtestrun22-1-v1"
            adapter.mkdir()
            (adapter / "adapter_config.json").write_text('{"r": 8}')
            (adapter / "adapter_model.safetensors").write_bytes(b"")
            get(port, "/v1/load_lora_adapter", {"lora_name": adapter.name, "lora_path": str(adapter)})
            run.ask_to_stop(StopMode.NOW)
            ended = run.wait_for_end()
            assert (ended["reason"], set(ended["exit_codes"])) == ("stopped_by_user", {"trainer"})
            assert (ended["receipt"]["free"], ended["receipt"]["orphans_found"]) == (True, 0)
            assert any("uses the warm server" in note["data"]["text"] for note in run.control.of_kind("note"))
            assert models(port) == [f"{SERVER}-1", adapter.name]
        lease.control.warm = {"user": "", "leave": ""}
        if late:
            wait_until(lambda: (lease.folder.read_json("warm.json") or {})["former"], lease.why)
            (tmp_path / "begin").touch()
        wait_until(lambda: models(port) == [f"{SERVER}-1"], lease.why)
        lease.control.warm = {"user": "", "leave": "Ended after 15 minutes without a run."}
        ended = lease.wait_for_end()
        assert (ended["reason"], ended["receipt"]["port_free"], ended["receipt"]["free"]) == ("completed", True, True)
        assert lease.control.of_kind("result")[-1]["data"]["text"] == "Ended after 15 minutes without a run."


def test_another_models_files_end_the_run_before_it_trains_and_then_the_server(tmp_path: Path) -> None:
    with warm_server(tmp_path) as (lease, port):
        lease.control.warm = {"user": "rtestrun22-1", "leave": ""}
        lease.launch()
        ready(lease)
        (tmp_path / "models" / "tiny" / "config.json").write_text('{"changed": true}')
        with using(tmp_path, port, trainer="forever") as run:
            assert run.launch() == Launch.STARTED
            ended = run.wait_for_end()
            assert ended["reason"] == "launch_failed"
            assert "files on the host have changed" in ended["detail"]
            assert run.control.train_steps() == []
        lease.control.warm = {"user": "", "leave": ""}
        assert lease.wait_for_end()["reason"] == "completed"
        assert "files on this host have changed" in lease.control.of_kind("result")[-1]["data"]["text"]


def test_a_server_on_the_port_that_is_not_the_leases_is_refused(tmp_path: Path) -> None:
    with warm_server(tmp_path, server="wrong_name") as (lease, port):
        lease.launch()
        hardware = replace(HARDWARE, server=replace(HARDWARE.server, ready_timeout_s=2))
        placement = Placement("testhost", cpu_slots=(0,), warm=WarmPlace(f"{SERVER}-1", (port,)))
        with attempt(tmp_path, trainer="forever", spec={"hardware": hardware, "placement": placement}) as run:
            wait_until(lambda: not port_is_free(port), lease.why)
            run.launch()
            ended = run.wait_for_end()
            assert ended["reason"] == "vllm_not_ready"
            assert "Another server is responding" in ended["detail"]
        lease.ask_to_stop(StopMode.NOW)
        lease.wait_for_end()
