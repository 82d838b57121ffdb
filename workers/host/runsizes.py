"""Measurement of the size of each run's folder on this host's disk, by walking over all files from time to time."""

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from workers.contract.wire.artifacts import RUN_FOLDER

log = logging.getLogger(__name__)

MIN_INTERVAL_S = 60.0
PAUSE_FACTOR = 50
"""Ratio of the interval between walks to the duration of a walk, because there may be many files or a slow disk."""
MAX_RUNS = 50_000
BLOCK_BYTES = 512


class RunSizes:
    """The sizes of the runs' folders, measured by `tick`, which a Loop calls."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self.measured: dict[str, int] | None = None
        """Bytes by run id, as a new dict after each walk; None before the first walk."""

    def tick(self, now: float) -> float:
        started_at = time.monotonic()
        self.measured = measure(self._runs_dir)
        return max(MIN_INTERVAL_S, PAUSE_FACTOR * (time.monotonic() - started_at))


def measure(runs_dir: Path) -> dict[str, int]:
    """Return the bytes on disk of the MAX_RUNS largest runs, by run id. Links are not followed; files that can't be
    read, or that disappear during the walk, are left out."""
    sizes = {}
    for entry in _entries(str(runs_dir)):
        if RUN_FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            sizes[entry.name] = _size(entry.path, set())
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:MAX_RUNS])


def _size(folder: str, counted: set[tuple[int, int]]) -> int:
    """Return the bytes on disk of a folder. `counted`: (device, inode) of the files so far, because a file may have
    several names."""
    size = 0
    for entry in _entries(folder):
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if entry.is_dir(follow_symlinks=False):
            size += _size(entry.path, counted)
        elif stat.st_nlink == 1 or (stat.st_dev, stat.st_ino) not in counted:
            counted.add((stat.st_dev, stat.st_ino))
            size += stat.st_blocks * BLOCK_BYTES
    return size


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        log.debug("%s can't be measured: %s", folder, error)
