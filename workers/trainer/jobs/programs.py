"""Programs that the trainer runs, whose output goes to its log and whose last lines explain failures."""

import os
import re
import shutil
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import workers
from workers.trainer.configuration.spec import SpecError

LAST_LINES = 60
SOURCE_ROOT = Path(workers.__file__).resolve().parents[1]


def follow(
    command: Sequence[str],
    *,
    percent: re.Pattern[str],
    progress: Callable[[int], None],
    environment: Mapping[str, str] | None = None,
) -> tuple[int, list[str]]:
    """Run a program, log its output, and return its exit code and last lines. Lines that match `percent` are reported
    as progress instead."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    last_lines: deque[str] = deque(maxlen=LAST_LINES)
    # Progress bars overwrite themselves with carriage returns, which text mode turns into line breaks.
    for line in (line.strip() for line in process.stdout if line.strip()):
        if match := percent.search(line):
            progress(int(match[1]))
        else:
            print(line, flush=True)
            last_lines.append(line)
    return process.wait(), list(last_lines)


def interpreter(
    title: str, group: str, environment: str, variable: str, *, stage: Callable[[str], None] | None = None
) -> str:
    """Return the Python that `variable` names or, without it, that of our own environment, which is built on first use.
    `group`: the environment's packages. `stage`: called with the stage when the environment is built; if given, an
    existing environment is checked as well. Raises SpecError if there is no such program or the environment can't be
    built."""
    own_python = SOURCE_ROOT / environment / "bin" / "python"
    python = os.environ.get(variable) or str(own_python)
    if Path(python) == own_python and (stage or not own_python.exists()):
        if stage:
            stage(f"checking {group}" if own_python.exists() else f"installing {group}, which is needed once")
        # Environments created by uv have no pip, but the machine's own Python may have one.
        system_python = getattr(sys, "_base_executable", sys.executable)
        command = [system_python, "-m", "controlplane.setup.bootstrap.on_demand", group]
        built = subprocess.run(command, cwd=SOURCE_ROOT, stderr=subprocess.PIPE, text=True)
        print(built.stderr, flush=True)
        if built.returncode:
            raise SpecError(
                f"{title} could not be installed on this host ({last_of(built.stderr.splitlines())}). "
                f"Run `python3 -m controlplane.setup.bootstrap.on_demand {group}` there, "
                f"or set {variable} to an interpreter that has it."
            )
    if shutil.which(python) is None:
        raise SpecError(f"{variable} is {python}, but there is no such program on this host.")
    return python


def last_of(lines: Sequence[str]) -> str:
    return next((line.strip()[:300] for line in reversed(lines) if line.strip()), "it printed nothing")
