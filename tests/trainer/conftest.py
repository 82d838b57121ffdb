"""The trainer as a process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.stack import ROOT

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(trainer_python: Path) -> Iterator[Start]:
    """start("-m", "workers.trainer", folder): a process of the trainer's interpreter, ended with the test."""
    with starting(trainer_python) as run:
        yield run


@contextmanager
def starting(trainer_python: Path) -> Iterator[Start]:
    """What `start` gives; its processes end with the block."""
    started: list[subprocess.Popen[str]] = []

    def run(*arguments: object) -> subprocess.Popen[str]:
        command = [str(trainer_python), *map(str, arguments)]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    try:
        yield run
    finally:
        for process in started:
            process.kill()
            process.communicate()


@pytest.fixture
def train(start: Start) -> Callable[[Path], subprocess.CompletedProcess[str]]:
    """Train a folder to its end."""

    def run(folder: Path) -> subprocess.CompletedProcess[str]:
        process = start("-m", "workers.trainer", folder)
        out, err = process.communicate(timeout=240)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    return run
