"""The folders of versions: created, locked, copied and removed."""

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from controlplane.catalogue.datasets.errors import NoSpace
from controlplane.catalogue.datasets.reader import files

LOCK = "lock"
"""The file in the folder that the worker locks."""
ORPHAN_AFTER_S = 3600
"""Age from which a path without a row is removed; an upload under way is younger."""


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Lock a file for the block. Yields False if another process has locked it; the kernel unlocks it if that dies."""
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
    """Fill a new folder with a version's source and its check's results: hard links, or copies without link support."""
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
    """Remove a version's files, unless a worker uses them, which removes them once its child has ended."""
    if not folder.is_dir():
        return
    with try_lock(folder / LOCK) as acquired:
        if acquired:
            shutil.rmtree(folder, ignore_errors=True)


def remove_orphans(paths: Iterable[Path], keys: set[str]) -> None:
    """Remove old files and folders whose names are not primary `keys`."""
    for path in paths:
        if path.name not in keys and time.time() - path.stat().st_mtime > ORPHAN_AFTER_S:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
