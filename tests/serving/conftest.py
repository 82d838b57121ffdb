from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.command import Command, Start, processes_of


@pytest.fixture(scope="module")
def data() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    yield folder / "d"
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def manage(data: Path) -> Iterator[Start]:
    """Starts manage.py on the data folder of this module; what a failed test leaves is ended."""
    commands: list[Command] = []

    def start(*arguments: str, **environment: str) -> Command:
        commands.append(Command(data, *arguments, **environment))
        return commands[-1]

    yield start
    for process in processes_of(data):
        process.kill()
    for command in commands:
        command.process.wait()
