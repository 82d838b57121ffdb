from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.setup.serving import valkey
from controlplane.setup.serving.embedded import Installation
from tests.serving.command import Command, Start, processes_of
from tests.stack import Stack


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    yield folder / "d"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def manage(data: Path) -> Iterator[Start]:
    """Starts manage.py on the data folder of this module, with our own interpreter as the trainer's unless told
    another: the real one is asked about TRL, which takes seconds. What a failed test leaves is ended."""
    commands: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        commands.append(Command(data, *arguments, **{"GRPO_TRAINER_PYTHON": sys.executable, **environment}))
        return commands[-1]

    yield start
    for process in processes_of(data):
        process.kill()
    for command in commands:
        command.process.wait()


@pytest.fixture
def shell(data: Path) -> Iterator[Stack]:
    """A Django shell on the command's data; nothing is started by it."""
    redis_url = valkey.redis_url(valkey.socket_path(data))
    here = Installation(data=data, port=1, redis_url=redis_url, host_name="testhost", trainer_python=None)
    stack = Stack(here, {**os.environ, **here.environment()})
    yield stack
    stack.shell.stop()
