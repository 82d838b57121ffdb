"""Room on the disk for what a job makes, and its way there."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from workers.trainer.configuration.spec import SpecError

LEAST_FREE = 256 << 20
"""Bytes that stay free on the disk."""


def check_room(folder: Path, size: float, what: str) -> None:
    """`what` needs `size` bytes in the folder. Raises SpecError if they are not free."""
    needed, free = size + LEAST_FREE, shutil.disk_usage(folder).free
    if free < needed:
        raise SpecError(
            f"{what} needs {needed / 1e9:.1f} GB in {folder}, and {free / 1e9:.1f} GB are free. "
            "Delete models that you no longer need, or free space on the host."
        )


def to_disk(folder: Path) -> None:
    """A host that loses its power must not be left with a complete name and empty files."""
    for path in [*folder.iterdir(), folder]:
        with suppress(OSError):  # some file systems can't for folders
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
