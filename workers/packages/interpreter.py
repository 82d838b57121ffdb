"""The interpreter that has the packages: which it is, and how it is built."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import workers
from workers.contract.stack.packages import ENVIRONMENT, GROUP, PYTHON
from workers.sandbox.layout import Interpreter
from workers.sandbox.outcomes import Backend, SandboxUnavailable
from workers.sandbox.pool import Sandbox

SOURCE_ROOT = Path(workers.__file__).resolve().parents[1]
INSIDE = Path(__file__).resolve().parent / "inside"
MISSING = (
    "The environments of others (reasoning-gym, TextArena, OpenEnv) are not installed here. Run `python3 -m "
    f"controlplane.setup.bootstrap.on_demand {GROUP}` on this machine, "
    f"or name an interpreter that has them in {PYTHON}."
)
LONGEST_WHY = 300


class PackageMissing(Exception):
    """The interpreter isn't here, can't be built, or lacks the package. The text says what to do, for people."""


def python() -> str:
    """The path of the interpreter. Raises PackageMissing."""
    named = os.environ.get(PYTHON)
    path = named or str(SOURCE_ROOT / ENVIRONMENT / "bin" / "python")
    if shutil.which(path) is None:
        raise PackageMissing(
            f"{PYTHON} names {named}, and there is no such program on this machine." if named else MISSING
        )
    return path


def build() -> str:
    """The same, after building the environment if it is ours and isn't there. Raises PackageMissing."""
    ours = SOURCE_ROOT / ENVIRONMENT / "bin" / "python"
    named = os.environ.get(PYTHON)
    if (named is None or Path(named) == ours) and not ours.exists():
        # Environments made by uv have no pip: the machine's own Python may have one.
        machines = getattr(sys, "_base_executable", sys.executable)
        command = [machines, "-m", "controlplane.setup.bootstrap.on_demand", GROUP]
        built = subprocess.run(command, cwd=SOURCE_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        if built.returncode:
            lines = [line.strip() for line in built.stderr.splitlines() if line.strip()]
            why = lines[-1][:LONGEST_WHY] if lines else "nothing was said"
            raise PackageMissing(f"The environments of others could not be installed here ({why}). {MISSING}")
    return python()


def open_sandbox(name: str, backend: Backend, *, parallel: int | None = None) -> Sandbox:
    """A sandbox of that interpreter with inside/`name`.py imported, which imports its package. Raises PackageMissing
    and SandboxUnavailable."""
    package = "workers.packages.inside"
    interpreter = Interpreter(python(), package, str(INSIDE))
    try:
        return Sandbox(backend, preload=(f"{package}.{name}",), parallel=parallel, interpreter=interpreter)
    except SandboxUnavailable as error:
        if "ModuleNotFoundError" in str(error):
            raise PackageMissing(f"{interpreter.python} lacks a package: {error} {MISSING}") from None
        raise


def remote_command() -> list[str]:
    """Of the program that asks OpenEnv servers. Raises PackageMissing."""
    return [python(), "-I", str(INSIDE / "remote.py")]
