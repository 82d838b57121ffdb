"""A version's folder: created, locked by a worker, taken over by another version, removed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controlplane.catalogue.datasets.errors import NoSpace
from controlplane.catalogue.datasets.reader import files

LOCK = "lock"
"""The file in the folder that the worker locks."""


@contextmanager
def held(path: Path) -> Iterator[bool]:
    """Lock a file for the block; False if another process has it. The kernel releases it if its holder dies."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def make_folder(folder: Path) -> None:
    """Create an empty folder; existing files belong to a version that was never stored. Raises NoSpace."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise NoSpace(
            f"The folder of the version could not be made: {os.strerror(error.errno or 0).lower()}."
        ) from error


def take_over(old: Path, new: Path) -> None:
    """Take over the source and the results of its check: as hard links, or as copies where links are impossible."""
    make_folder(new)
    for name in (files.SOURCE, files.REPORT, files.PROBLEMS):
        if not (old / name).is_file():
            continue
        try:
            with suppress(OSError):
                os.link(old / name, new / name)
                continue
            shutil.copyfile(old / name, new / name)
        except OSError as error:
            raise NoSpace(f"The file could not be copied: {os.strerror(error.errno or 0).lower()}.") from error


def remove_folder(folder: Path) -> None:
    """Remove a version's files, unless a worker uses them: it removes them itself once its child has ended."""
    if not folder.is_dir():
        return
    with held(folder / LOCK) as acquired:
        if acquired:
            shutil.rmtree(folder, ignore_errors=True)
