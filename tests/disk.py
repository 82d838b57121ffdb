"""A file system so small that a test can fill it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

SOURCE = "a-small-disk"
"""Its name among the mounts, by which a test that counts them leaves out those of tests beside it."""


@contextmanager
def mounted(folder: Path, size: str) -> Iterator[Path]:
    """In memory, or a skip where none can be mounted."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", SOURCE, str(folder)], capture_output=True)
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """With this file, until nothing fits any more."""
    with pytest.raises(OSError, match="No space"):
        path.write_bytes(b"x" * (4 << 20))
