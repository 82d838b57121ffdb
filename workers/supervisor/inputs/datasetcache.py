"""A cache of this host's datasets and corpora, by sha256. Each file is verified whenever it is used.

Several supervisors share the folder. A cached file is a hard link to the file in a run's folder, or a copy if the file
system has no hard links. If anything here fails, the run simply fetches its dataset from the control plane.
"""

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
_LEFTOVER_AFTER_S = 86_400
_RETRY_S = 0.05


class DatasetCache:
    """The cache in one folder; the least recently used files are removed first. With `limit_bytes` 0 nothing is
    cached."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes

    @contextmanager
    def alone(self, sha256: str, wait_s: float) -> Iterator[None]:
        """Lock out other processes on this host that would fetch the same dataset. After `wait_s`, or if locking fails,
        continue without the lock: concurrent fetches do no harm."""
        lock = self._lock(f"lock-{sha256[:1]}") if self._is_usable(sha256) else None
        try:
            deadline = time.monotonic() + wait_s
            while lock is not None and not _acquire(lock) and time.monotonic() < deadline:
                time.sleep(_RETRY_S)
            yield
        finally:
            if lock is not None:
                os.close(lock)

    def copy_to(self, sha256: str, target: Path) -> bool:
        """Copy the dataset to `target`, which must not exist, and return whether that succeeded. Copying fails if the
        dataset is not cached, or was damaged and is therefore removed. Raises OSError if `target` can't be written."""
        if not self._is_usable(sha256):
            return False
        cached_file = self._path(sha256)
        if not cached_file.is_file() or cached_file.is_symlink():
            return False
        try:
            with cached_file.open("rb"):
                pass
        except OSError:  # another supervisor removed it, or another user owns it
            return False
        try:
            _link_or_copy(cached_file, target)
        except FileNotFoundError:
            return False
        with target.open("rb") as file:
            is_intact = hashlib.file_digest(file, "sha256").hexdigest() == sha256
        if not is_intact:
            target.unlink()
            cached_file.unlink(missing_ok=True)
            return False
        with suppress(OSError):
            os.utime(cached_file)
        return True

    def keep(self, sha256: str, source: Path) -> None:
        """Add `source`, a verified dataset, to the cache, and remove others to stay within the limit."""
        if not self._is_usable(sha256) or source.stat().st_size > self._limit:
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

    def _is_usable(self, sha256: str) -> bool:
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
            if not _acquire(lock):
                return  # another process is making room
            files = sorted(_cached_files(self._folder, f"*{_SUFFIX}"), reverse=True)
            total_size = 0
            for _used_at, size, path in files:
                total_size += size
                if total_size > self._limit:
                    path.unlink(missing_ok=True)
            for modified_at, _, path in _cached_files(self._folder, "*.part"):
                if modified_at < time.time() - _LEFTOVER_AFTER_S:
                    path.unlink(missing_ok=True)
        finally:
            os.close(lock)


def _cached_files(folder: Path, pattern: str) -> Iterator[tuple[float, int, Path]]:
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            status = path.stat()
            yield status.st_mtime, status.st_size, path


def _acquire(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _link_or_copy(source: Path, target: Path) -> None:
    """Link or copy a file. Raises FileNotFoundError if there is no source, other OSErrors if the target can't be
    written."""
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with source.open("rb") as read, os.fdopen(descriptor, "wb") as write:
            shutil.copyfileobj(read, write, 1 << 20)
