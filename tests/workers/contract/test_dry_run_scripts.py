"""A dry run: the commands as people read them, and the script that runs them without a control plane."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.running_vllm import PROGRAM
from tests.trainer import builders
from tests.waiting import wait_until
from workers.contract.run.hardware import Rollout, ServerSpec, Strategy, WeightSync
from workers.contract.run.spec import AttemptSpec, LoraSpec, ModelSpec, RewardSpec
from workers.contract.stack import commands, dry_run
from workers.contract.stack.commands import Programs
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import FileName
from workers.supervisor.processes.listening import port_is_free

FAKE = Programs(trainer=(sys.executable, "-m", "workers.trainer"), vllm=(sys.executable, str(PROGRAM)))
A_LONG_TIME = "299.5"  # nobody else sleeps for so long
SWAP = ServerSpec(count=2, weight_sync=WeightSync.LORA, request_timeout_s=60, ready_timeout_s=60)
Script = Callable[..., "subprocess.Popen[str]"]


def two_ports() -> list[int]:
    """Two free ones."""
    return [port for port in range(23100 + os.getpid() % 500, 24000) if port_is_free(port)][:2]


def with_servers(folder: Path, model: Path | str = "/models/tiny", **grpo: Any) -> AttemptSpec:
    hardware = {"rollout": Rollout.SERVER, "server": SWAP}
    run = {"lora": LoraSpec(r=8, alpha=16), "name": "two\nservers"}
    rewards = (RewardSpec("variety", "unique_chars"),)
    placement = {"ports": two_ports()}
    builders.attempt_folder(
        folder, model=model, hardware=hardware, placement=placement, run=run, rewards=rewards, grpo=grpo
    )
    return read(folder)


def read(folder: Path) -> AttemptSpec:
    return from_dict(AttemptSpec, json.loads((folder / FileName.SPEC).read_text()))


def on_the_cpu(folder: Path, **hardware: Any) -> AttemptSpec:
    return read(builders.attempt_folder(folder, model="/models/tiny", hardware=hardware))


@pytest.fixture
def run() -> Iterator[Script]:
    """Starts a folder's script as a person would, with the project's source and nothing else of it."""
    started: list[subprocess.Popen[str]] = []

    def start(folder: Path, spec: AttemptSpec, programs: Programs = FAKE, **more: str) -> subprocess.Popen[str]:
        (folder / dry_run.SCRIPT).write_text(dry_run.script(spec, programs))
        (folder / dry_run.ACCELERATE).write_text(dry_run.accelerate_yaml(spec))
        env = {**os.environ, "PYTHONPATH": str(ROOT), "FAKE_VLLM_LIFETIME": "200", **more}
        env.pop("TRAINER_PYTHON", None)
        process = subprocess.Popen(
            ["bash", str(folder / dry_run.SCRIPT)],
            env=env,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=60)


def test_each_process_is_a_command_that_can_be_pasted(tmp_path: Path) -> None:
    spec = with_servers(tmp_path)
    for process in dry_run.processes(spec, FAKE):
        words = shlex.split(dry_run.shell(process).replace("\\\n", " "))
        variables = [f"{name}={value}" for name, value in sorted(process.environment.items())]
        assert words == [*variables, *process.argv]


def test_the_processes_are_those_that_the_host_starts(tmp_path: Path) -> None:
    spec = with_servers(tmp_path)
    servers = [commands.server_argv(spec, place, FAKE) for place in commands.own_servers(spec)]
    shown = dry_run.processes(spec, FAKE, "/folder")
    assert [process.role for process in shown] == ["vllm", "vllm-2", "trainer"]
    assert [list(process.argv) for process in shown] == [*servers, commands.trainer_argv("/folder", FAKE)]


def test_the_ranks_that_the_trainer_starts_are_shown_as_it_starts_them(tmp_path: Path) -> None:
    spec = with_servers(tmp_path)
    two = replace(spec, run=replace(spec.run, hardware=replace(spec.run.hardware, processes=2)))
    shown = dry_run.processes(two, FAKE, "/folder")[-1]
    assert list(shown.argv) == ["torchrun", *commands.torchrun_arguments(2, "/folder")]
    assert "--nproc-per-node=2" in shown.argv


def test_a_model_of_the_hub_is_fetched_first(tmp_path: Path) -> None:
    spec = on_the_cpu(tmp_path)
    hub = replace(spec, run=replace(spec.run, model=ModelSpec("org/name", revision="v1")))
    fetch, trainer = dry_run.processes(hub, FAKE)
    assert fetch.argv[1:6] == ("-m", "workers.trainer.fetch", "org/name", "--revision", "v1")
    assert trainer.environment["HF_HUB_OFFLINE"] == "1"
    text = dry_run.script(hub, FAKE)
    assert text.index("workers.trainer.fetch org/name") < text.index("accelerate.commands.launch")


@pytest.mark.parametrize(
    ("hardware", "kind"),
    [
        ({}, "NO"),
        ({"processes": 2, "strategy": Strategy.DDP}, "MULTI_CPU"),
        ({"processes": 2, "strategy": Strategy.ZERO3, "trainer_gpus": 2}, "MULTI_GPU"),
        ({"trainer_gpus": 1, "strategy": Strategy.ZERO2}, "NO"),
    ],
)
def test_accelerate_learns_how_many_processes_there_are(tmp_path: Path, hardware: dict[str, Any], kind: str) -> None:
    text = dry_run.accelerate_yaml(on_the_cpu(tmp_path, **hardware))
    assert f"distributed_type: '{kind}'\n" in text
    assert f"num_processes: {hardware.get('processes', 1)}\n" in text
    assert "deepspeed" not in text  # the trainer's own, so that it is the same however it was started


def test_nothing_in_a_spec_becomes_code_of_the_script(tmp_path: Path) -> None:
    spec = with_servers(tmp_path)
    evil = "$(touch pwned) `touch pwned`\n'\"; touch pwned #"
    run = replace(spec.run, name=evil, model=ModelSpec("/models/" + evil, revision=evil))
    text = dry_run.script(replace(spec, run=run, attempt_id=evil), FAKE)
    (tmp_path / "stub").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "stub").chmod(0o755)
    (tmp_path / "evil.sh").write_text(text.replace(sys.executable, str(tmp_path / "stub")))
    assert subprocess.run(["bash", "-n", "evil.sh"], cwd=tmp_path).returncode == 0
    subprocess.run(["bash", "evil.sh"], cwd=tmp_path, capture_output=True, timeout=30)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.processes
def test_a_script_without_the_source_says_what_it_needs(tmp_path: Path, run: Script) -> None:
    process = run(tmp_path, on_the_cpu(tmp_path), PYTHONPATH="/nowhere")
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "Put the project's folder on PYTHONPATH" in said


@pytest.mark.processes
def test_a_server_that_ends_before_it_answers_ends_the_script(tmp_path: Path, run: Script) -> None:
    process = run(tmp_path, with_servers(tmp_path), FAKE_VLLM="dies_on_start")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "exited before it responded" in said
    assert "Engine core initialization failed" in (tmp_path / "logs" / "vllm.log").read_text()


@pytest.mark.processes
def test_another_server_on_the_port_is_not_taken_for_this_ones(tmp_path: Path, run: Script) -> None:
    spec = with_servers(tmp_path)
    server = replace(SWAP, ready_timeout_s=3)
    hardware = replace(spec.run.hardware, server=server)
    process = run(tmp_path, replace(spec, run=replace(spec.run, hardware=hardware)), FAKE_VLLM="wrong_name")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was not ready within 3 s" in said


@pytest.mark.processes
def test_ending_the_script_ends_all_that_it_started(tmp_path: Path, run: Script) -> None:
    process = run(tmp_path, with_servers(tmp_path), FAKE_VLLM="never_ready")
    script = psutil.Process(process.pid)
    wait_until(lambda: sum("VLLM" in child.name() for child in script.children(recursive=True)) == 2)
    tree = script.children(recursive=True)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143
    wait_until(lambda: not any(child.is_running() for child in tree))


@pytest.mark.trainer
@pytest.mark.processes
def test_the_script_of_a_cpu_profile_trains(
    tmp_path: Path, run: Script, trainer_python: Path, tiny_model: Path
) -> None:
    spec = read(builders.attempt_folder(tmp_path / "a folder", model=tiny_model))
    programs = Programs(trainer=(str(trainer_python), "-m", "workers.trainer"))
    process = run(tmp_path / "a folder", spec, programs)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert list(builders.logs(tmp_path / "a folder")) == [1, 2, 3, 4]
    assert (tmp_path / "a folder" / FileName.CHECKPOINTS / "checkpoint-4").is_dir()


@pytest.mark.trainer
@pytest.mark.processes
def test_the_script_of_two_servers_starts_them_trains_and_ends_them(
    tmp_path: Path, run: Script, trainer_python: Path, tiny_model: Path
) -> None:
    spec = with_servers(tmp_path, tiny_model, max_steps=2)
    programs = replace(FAKE, trainer=(str(trainer_python), "-m", "workers.trainer"))
    process = run(tmp_path, spec, programs)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert said.count("is ready.") == 2
    assert list(builders.logs(tmp_path)) == [1, 2]
    assert all(port_is_free(port) for port in spec.placement.ports)


@pytest.mark.processes
def test_a_server_that_dies_in_training_ends_the_script_though_the_trainer_waits(tmp_path: Path, run: Script) -> None:
    spec = with_servers(tmp_path)
    process = run(tmp_path, spec, replace(FAKE, trainer=(a_trainer_that_waits(tmp_path), "-m", "workers.trainer")))
    wait_until(lambda: with_word(A_LONG_TIME))
    [trainer] = with_word(A_LONG_TIME)
    [server] = with_word(str(spec.placement.ports[1]))
    server.kill()
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "server" in said
    wait_until(lambda: not trainer.is_running())


def with_word(word: str) -> list[psutil.Process]:
    """The processes whose command has this word."""
    return [process for process in psutil.process_iter(["cmdline"]) if word in (process.info["cmdline"] or [])]


def a_trainer_that_waits(folder: Path) -> str:
    """An interpreter that trains nothing, for ever."""
    stub = folder / "python"
    stub.write_text(f"""#!/bin/sh
case "$*" in *accelerate*) exec sleep {A_LONG_TIME};; esac
exec {sys.executable} "$@"
""")
    stub.chmod(0o755)
    return str(stub)
