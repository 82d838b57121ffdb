"""What the folder of each run takes on this host's disk: a walk over all files, now and then."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from workers.contract.wire.artifacts import RUN_FOLDER

log = logging.getLogger(__name__)

EVERY_S = 60.0
SHARE = 50
"""A walk takes a fiftieth of the time at most: there may be very many files, or a slow disk."""
MOST_RUNS = 50_000
BLOCK = 512
"""The unit of st_blocks, whatever the file system's."""


class RunSizes:
    """`tick` is for a Loop."""

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir
        self.measured: dict[str, int] | None = None
        """Bytes by run id, as last measured; another object after each walk. None: not yet."""

    def tick(self, now: float) -> float:
        started = time.monotonic()
        self.measured = measure(self._runs_dir)
        return max(EVERY_S, SHARE * (time.monotonic() - started))


def measure(runs_dir: Path) -> dict[str, int]:
    """Bytes of the disk's blocks by run id, of the biggest MOST_RUNS. Links are not followed; what can't be read, or
    goes meanwhile, is left out."""
    sizes = {}
    for entry in _entries(str(runs_dir)):
        if RUN_FOLDER.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
            sizes[entry.name] = _size(entry.path, set())
    return dict(sorted(sizes.items(), key=lambda one: -one[1])[:MOST_RUNS])


def _size(folder: str, seen: set[tuple[int, int]]) -> int:
    """`seen`: files with several names, which count once."""
    size = 0
    for entry in _entries(folder):
        try:
            stat = entry.stat(follow_symlinks=False)
        except OSError:
            continue
        if entry.is_dir(follow_symlinks=False):
            size += _size(entry.path, seen)
        elif stat.st_nlink == 1 or (stat.st_dev, stat.st_ino) not in seen:
            seen.add((stat.st_dev, stat.st_ino))
            size += stat.st_blocks * BLOCK
    return size


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError as error:
        log.debug("%s can't be measured: %s", folder, error)
