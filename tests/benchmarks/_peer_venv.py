"""A throw-away environment for the tools of `bench peers`, outside the repository and gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("peers-requirements.txt")


@contextmanager
def environment() -> Iterator[Path]:
    """Its interpreter. With uv where that is, else with the standard library's venv and pip."""
    folder = Path(tempfile.mkdtemp(prefix="gt-peers-"))
    python = folder / "venv" / "bin" / "python"
    try:
        if uv := shutil.which("uv"):
            _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder / "venv")])
            _run([uv, "pip", "install", "--quiet", "--python", str(python), "-r", str(REQUIREMENTS)])
        else:
            _run([sys.executable, "-m", "venv", str(folder / "venv")])
            _run([str(python), "-m", "pip", "install", "--quiet", "-r", str(REQUIREMENTS)])
        yield python
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stderr[-2000:]}")
