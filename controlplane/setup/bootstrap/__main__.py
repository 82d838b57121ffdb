"""The command `python -m controlplane.setup.bootstrap`, which regenerates the lock files from pyproject.toml. It needs
uv and network access.

It writes no uv.lock, because that would contain the package index's address in every entry. It uses `--universal
--python-version 3.11`, because a lock for a newer 3.11 would lack packages that 3.11.2 needs.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from controlplane.setup.bootstrap.environments import BASE, GPU_LOCK, ON_DEMAND, ROOT, TEST, TRAINER
from workers.contract.stack.packages import CPU, GPU

NOT_LOCKED = re.compile(r"^(torch|triton|vllm|nvidia-|cuda-)")


def main() -> None:
    _compile(["pyproject.toml"], BASE.lock)
    _compile(["pyproject.toml", "--group", "test", "--constraint", str(BASE.lock)], TEST.lock)
    with tempfile.TemporaryDirectory() as folder:
        constraint = Path(folder) / "torch"
        constraint.write_text(f"torch=={CPU.torch}\n")
        full_lock = Path(folder) / "full.lock"
        _compile(["--group", "train", "--constraint", str(constraint)], full_lock)
        excluded_packages = sorted({name for name in locked(full_lock) if NOT_LOCKED.match(name)})
        flags = [f"--no-emit-package={name}" for name in excluded_packages]
        _compile(["--group", "train", "--constraint", str(constraint), *flags], TRAINER.lock)
        gpu = Path(folder) / "gpu"
        gpu.write_text("\n".join(GPU.requirements))
        _compile(["--group", "train", str(gpu)], GPU_LOCK)
    for name, environment in ON_DEMAND.items():
        _compile(["--group", name], environment.lock)


def locked(lock: Path) -> dict[str, set[str]]:
    """Return the packages in a lock with their versions; a universal lock may have several, by Python version."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", lock.read_text(), re.MULTILINE):
        versions.setdefault(name.lower(), set()).add(version)
    return versions


def _compile(arguments: list[str], lock: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        sys.exit("uv is not on PATH")
    flags = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    subprocess.run([uv, "pip", "compile", *arguments, *flags, "--output-file", str(lock)], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
