"""Datasets that runs of this host have used before, by their sha256: each file is checked whenever it is given out.

Several supervisors use one folder at once. A cached file is a second name of the one in a run's folder, or a copy where
the file system knows no hard links; whatever fails here makes a run fetch its dataset itself, and nothing else.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SHA256 = re.compile(r"[0-9a-f]{64}")
_SUFFIX = ".parquet"
_FORGOTTEN_AFTER_S = 86_400
"""A file that somebody is still putting here is younger than that."""
_ASK_AGAIN_S = 0.05


class DatasetCache:
    """`limit_bytes`: what is kept together; those used longest ago go first. 0: nothing is kept."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    @contextmanager
    def alone(self, sha256: str, wait_s: float) -> Iterator[None]:
        """While it lasts nobody else fetches this dataset to this host. After `wait_s`, or where locking fails, go on
        without: two that fetch the same disturb each other in nothing."""
        lock = self._lock(f"lock-{sha256[:1]}") if self._usable(sha256) else None
        try:
            until = time.monotonic() + wait_s
            while lock is not None and not _taken(lock) and time.monotonic() < until:
                time.sleep(_ASK_AGAIN_S)
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def give(self, sha256: str, target: Path) -> bool:
        """Put the dataset at `target`, which nothing has yet. False: it isn't here, or was damaged and is thrown away.

        Raises OSError where `target` can't be written.
        """
        if not self._usable(sha256):
            return False
        cached = self._path(sha256)
        if not cached.is_file() or cached.is_symlink():
            return False
        try:
            with cached.open("rb"):
                pass
        except OSError:  # another supervisor made room, another owner keeps it
            return False
        try:
            _link_or_copy(cached, target)
        except FileNotFoundError:
            return False
        if _sha256(target) != sha256:
            target.unlink()
            cached.unlink(missing_ok=True)
            return False
        with suppress(OSError):
            os.utime(cached)
        return True

    def keep(self, sha256: str, source: Path) -> None:
        """Remember `source`, a dataset that was checked; and make room for it."""
        if not self._usable(sha256) or source.stat().st_size > self._limit:
            return
        draft = self._folder / f"{sha256}.{os.getpid()}.part"
        try:
            draft.unlink(missing_ok=True)
            _link_or_copy(source, draft)
            os.utime(draft)
            draft.replace(self._path(sha256))
            self._make_room()
        except OSError:  # a full disk, another owner: the next run fetches it again
            with suppress(OSError):
                draft.unlink(missing_ok=True)

    def _usable(self, sha256: str) -> bool:
        if self._limit <= 0 or not _SHA256.fullmatch(sha256):
            return False
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return True
        return False

    def _path(self, sha256: str) -> Path:
        return self._folder / f"{sha256}{_SUFFIX}"

    def _lock(self, name: str) -> int | None:
        with suppress(OSError):
            return os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        return None

    def _make_room(self) -> None:
        lock = self._lock("lock-room")
        if lock is None:
            return
        try:
            if not _taken(lock):
                return  # somebody else is at it
            there = sorted(_found(self._folder, f"*{_SUFFIX}"), reverse=True)
            total = 0
            for _used_at, size, path in there:
                total += size
                if total > self._limit:
                    path.unlink(missing_ok=True)
            for put_at, _, path in _found(self._folder, "*.part"):
                if put_at < time.time() - _FORGOTTEN_AFTER_S:
                    path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _found(folder: Path, pattern: str) -> Iterator[tuple[float, int, Path]]:
    """(when it was last used, its size, its path)"""
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            told = path.stat()
            yield told.st_mtime, told.st_size, path


def _taken(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    """Raises FileNotFoundError without a source, another OSError where the target can't be written."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with source.open("rb") as read, os.fdopen(descriptor, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
