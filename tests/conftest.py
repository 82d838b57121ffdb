"""Fixtures that several packages share: a real Valkey, the whole product running, the trainer's interpreter,
a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controlplane.serving import valkey as valkey_server
from controlplane.serving.processes import Fleet
from tests.stack import FAKE_TRAINER, ROOT, Stack, command_of


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A temporary folder whose path leaves room for a socket's name."""
    folder = Path(tempfile.mkdtemp(prefix="gt-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def valkey(short_folder: Path) -> Iterator[str]:
    """The address of a real Valkey of this test session."""
    fleet = Fleet(report=print)
    fleet.start(valkey_server.program(short_folder))
    fleet.wait_ready(["valkey"])
    yield valkey_server.redis_url(valkey_server.socket_path(short_folder))
    fleet.stop()


@pytest.fixture(scope="session")
def make_stack() -> Iterator[Callable[..., Stack]]:
    """Starts whole products: `make_stack(GRPO_SAVE_DEADLINE_S="2")`. Each is stopped at the end of the session,
    or earlier by its `stop()`."""
    stacks: list[Stack] = []

    def make(**environment: str) -> Stack:
        stack = Stack.start(Path(tempfile.mkdtemp(prefix="gt-")), environment)
        stacks.append(stack)
        return stack

    yield make
    for stack in stacks:
        stack.stop()


@pytest.fixture(scope="session")
def stack(make_stack: Callable[..., Stack]) -> Stack:
    """Valkey, web, control worker with beat and host worker, all real; the trainer is the fake one."""
    return make_stack(GRPO_TRAINER_COMMAND=command_of(FAKE_TRAINER))


@pytest.fixture(scope="session")
def trainer_stack(make_stack: Callable[..., Stack], trainer_python: Path) -> Stack:
    """The same with the real trainer."""
    return make_stack(GRPO_TRAINER_PYTHON=str(trainer_python))


@pytest.fixture(scope="session")
def trainer_python() -> Path:
    """The trainer's interpreter, or a skip."""
    python = Path(os.environ.get("GRPO_TRAINER_PYTHON") or ROOT / ".venv-train" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"no trainer environment at {python}: run `python3 manage.py test` once to build it")
    return python


@pytest.fixture(scope="session")
def tiny_model(trainer_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that loads and hardly knows anything."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    subprocess.run([trainer_python, "-m", "workers.trainer.tiny", folder, "--quick"], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of a Chromium, or a skip."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if found is None:
        pytest.skip("no Chromium on PATH: install the package `chromium`")
    from playwright._impl._driver import compute_driver_executable

    node = subprocess.run([compute_driver_executable()[0], "--version"], capture_output=True, text=True)
    if node.returncode:
        pytest.skip(f"Playwright's driver can't start here, try installing libatomic1: {node.stderr.strip()}")
    return found
