"""Creation, locking, copying and removal of the folders of versions."""

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
"""Name of the file that the worker locks in a version's folder."""
ORPHAN_AFTER_S = 3600
"""Age at which a path without a database row is removed; an upload in progress is younger."""


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Lock a file for the block, and yield True; yield False if another live process has locked it."""
    with path.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def make_folder(folder: Path) -> None:
    """Create an empty folder, deleting the files of a version that was never stored. Raises NoSpace if that fails."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True, mode=0o700)
    except OSError as error:
        raise NoSpace(f"The version's folder could not be created: {os.strerror(error.errno or 0).lower()}.") from error


def take_over(old_folder: Path, new_folder: Path) -> None:
    """Create a folder with the source and the check results of another one, hard-linked if possible. Raises NoSpace if
    that fails."""
    make_folder(new_folder)
    for name in (files.SOURCE, files.REPORT, files.PROBLEMS):
        if not (old_folder / name).is_file():
            continue
        try:
            with suppress(OSError):
                os.link(old_folder / name, new_folder / name)
                continue
            shutil.copyfile(old_folder / name, new_folder / name)
        except OSError as error:
            raise NoSpace(f"The file could not be copied: {os.strerror(error.errno or 0).lower()}.") from error


def remove_folder(folder: Path) -> None:
    """Remove a version's files. If a worker is using them, the worker removes them once its child has exited."""
    if not folder.is_dir():
        return
    with try_lock(folder / LOCK) as has_lock:
        if has_lock:
            shutil.rmtree(folder, ignore_errors=True)


def remove_orphans(paths: Iterable[Path], keys: set[str]) -> None:
    """Remove old files and folders whose names aren't among `keys`, the primary keys of existing versions."""
    for path in paths:
        if path.name not in keys and time.time() - path.stat().st_mtime > ORPHAN_AFTER_S:
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
