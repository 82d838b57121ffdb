"""The trainer as a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.trainer.preloaded import Preloaded, Process

Start = Callable[..., Process]
StartAnew = Callable[..., "subprocess.Popen[str]"]
Train = Callable[[Path], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def start(preloaded: Preloaded) -> Iterator[Start]:
    """start("-m", "workers.trainer", folder): a process like one of the trainer's interpreter, ended with the test."""
    with starting(preloaded) as run:
        yield run


@pytest.fixture
def start_anew(trainer_python: Path) -> Iterator[StartAnew]:
    """As `start`, but a start of the interpreter, as on a host."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        command = [str(trainer_python), *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        started.append(subprocess.Popen(command, cwd=ROOT, env=env, **pipes))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.communicate()


@contextmanager
def starting(preloaded: Preloaded) -> Iterator[Start]:
    """What `start` gives; its processes end with the block."""
    started: list[Process] = []

    def run(*arguments: object, **env: str) -> Process:
        process = preloaded.start(*arguments, env={"OMP_NUM_THREADS": "1", **env})
        started.append(process)
        return process

    try:
        yield run
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.fixture(scope="session")
def calling_model(preloaded: Preloaded, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Calls the calculator in its first turn and answers in its second."""
    folder = tmp_path_factory.mktemp("models") / "calling"
    preloaded.run("-m", "tests.trainer.playing", "--calls", folder)
    return folder


@pytest.fixture
def train(start: Start) -> Train:
    """Train a folder to its end."""

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        process = start("-m", "workers.trainer", folder)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run
