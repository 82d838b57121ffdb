"""manage.py as a person starts it: a process of its own, with a data folder of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from controlplane.setup.serving.processes import BASE_DIR
from tests.waiting import LIMIT_S, wait_until

Start = Callable[..., "Command"]


class Command:
    """A running manage.py; `wait_for(text)` reads on until it was said."""

    def __init__(self, data: Path, *arguments: str, **environment: str) -> None:
        self.data = data
        self.said = data.parent / f"{data.name}-{time.monotonic_ns()}.out"
        env = {**os.environ, "CONTROLPLANE_BOOTSTRAP": "off", "CONTROLPLANE_DATA": str(data), **environment}
        with self.said.open("wb") as out:
            argv = [sys.executable, str(BASE_DIR / "manage.py"), *arguments]
            # From another folder: people start it from wherever they are.
            self.process = subprocess.Popen(argv, env=env, cwd="/", stdout=out, stderr=out, start_new_session=True)

    @property
    def text(self) -> str:
        return self.said.read_text()

    def wait_for(self, pattern: str) -> re.Match[str]:
        wait_until(
            lambda: re.search(pattern, self.text) is not None or self.process.poll() is not None, lambda: self.text
        )
        found = re.search(pattern, self.text)
        assert found is not None, f"it never said {pattern!r}:\n{self.text}"
        return found

    def interrupt(self) -> int:
        # To the whole group, as a terminal does.
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(LIMIT_S)

    def url(self) -> str:
        return self.wait_for(r"http://127\.0\.0\.1:\d+")[0]


def processes_of(data: Path) -> list[psutil.Process]:
    """Whatever lives with this data folder in its environment, or (a run's processes) in its arguments."""
    return [p for p in psutil.process_iter() if p.pid != os.getpid() and _belongs(p, str(data))]


def none_left(data: Path) -> None:
    """Raises:
    AssertionError: Something of this data folder went on living; with what it is.
    """
    try:
        wait_until(lambda: processes_of(data) == [])
    except AssertionError:
        alive = [f"{p.pid} (child of {p.ppid()}, {p.status()}): {' '.join(p.cmdline())}" for p in processes_of(data)]
        raise AssertionError("left behind:\n" + "\n".join(alive)) from None


def _belongs(process: psutil.Process, data: str) -> bool:
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.environ().get("CONTROLPLANE_DATA") == data or data + "/" in " ".join(process.cmdline())
    except psutil.Error:
        return False
