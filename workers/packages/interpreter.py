"""The interpreter with the third-party packages: finds or builds it, and opens a sandbox in it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import workers
from workers.contract.stack.packages import ENVIRONMENT, GROUP, PYTHON
from workers.sandbox.layout import PackageInterpreter
from workers.sandbox.outcomes import Backend, SandboxUnavailable
from workers.sandbox.pool import Sandbox

SOURCE_ROOT = Path(workers.__file__).resolve().parents[1]
INSIDE_FOLDER = Path(__file__).resolve().parent / "inside"
MISSING = (
    "The third-party environments (reasoning-gym, TextArena, OpenEnv) are not installed here. Run `python3 -m "
    f"controlplane.setup.bootstrap.on_demand {GROUP}` on this machine, "
    f"or set {PYTHON} to an interpreter that has them."
)
MAX_REASON_LENGTH = 300


class PackageMissing(Exception):
    """Failure to find or build the interpreter, or a package in it; the message tells people what to do."""


def python() -> str:
    """Return the path of the interpreter. Raises PackageMissing if there is none."""
    configured = os.environ.get(PYTHON)
    path = configured or str(SOURCE_ROOT / ENVIRONMENT / "bin" / "python")
    if shutil.which(path) is None:
        raise PackageMissing(
            f"{PYTHON} is {configured}, but there is no such program on this machine." if configured else MISSING
        )
    return path


def build() -> str:
    """Build our own environment if necessary, and return the path of the interpreter. Raises PackageMissing if that
    fails or the configured one doesn't exist."""
    own_python = SOURCE_ROOT / ENVIRONMENT / "bin" / "python"
    configured = os.environ.get(PYTHON)
    if (configured is None or Path(configured) == own_python) and not own_python.exists():
        # Environments made by uv have no pip, but the machine's own Python may have one.
        system_python = getattr(sys, "_base_executable", sys.executable)
        command = [system_python, "-m", "controlplane.setup.bootstrap.on_demand", GROUP]
        installation = subprocess.run(
            command, cwd=SOURCE_ROOT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        if installation.returncode:
            lines = [line.strip() for line in installation.stderr.splitlines() if line.strip()]
            reason = lines[-1][:MAX_REASON_LENGTH] if lines else "no reason was given"
            raise PackageMissing(f"The third-party environments could not be installed here ({reason}). {MISSING}")
    return python()


def open_sandbox(name: str, backend: Backend, *, parallel: int | None = None) -> Sandbox:
    """Open a sandbox that runs the interpreter with inside/`name`.py and its package imported. Raises PackageMissing if
    the interpreter or a package is missing, and SandboxUnavailable if the sandbox can't be started."""
    package = "workers.packages.inside"
    interpreter = PackageInterpreter(python(), package, str(INSIDE_FOLDER))
    try:
        return Sandbox(backend, preload=(f"{package}.{name}",), parallel=parallel, interpreter=interpreter)
    except SandboxUnavailable as error:
        if "ModuleNotFoundError" in str(error):
            raise PackageMissing(f"{interpreter.python} lacks a package: {error} {MISSING}") from None
        raise


def remote_command() -> list[str]:
    """Return the command line of the program that communicates with OpenEnv servers. Raises PackageMissing if there is
    no interpreter."""
    return [python(), "-I", str(INSIDE_FOLDER / "remote.py")]
