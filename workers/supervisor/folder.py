"""An attempt's folder: its paths, its lock, and what an earlier supervisor left in it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import socket
import threading
from pathlib import Path
from typing import Any

from workers.contract import AttemptSpec, EventKind, FileName, StopMode, from_dict
from workers.supervisor import procfs

log = logging.getLogger(__name__)

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AttemptFolder:
    """RUNS_DIR/<run>/<attempt number>/"""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = False
        """The folder was removed while it was held: nothing is written to it any more, and nothing made anew."""
        self._fd: int | None = None

    @classmethod
    def of(cls, runs_dir: Path, run_id: str, number: int) -> AttemptFolder:
        if not _RUN_ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is no run id")
        return cls(runs_dir / run_id / str(int(number)))

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str) -> Path:
        return self.path / FileName.LOGS / f"{name}.log"

    def hold(self) -> None:
        """From now on this very folder is meant, not another one that somebody makes under the same name."""
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def look(self) -> bool:
        """Whether the folder that is held is there. Its own file descriptor keeps its inode from being reused."""
        if self._fd is None or self.lost:
            return not self.lost
        try:
            held, found = os.fstat(self._fd), os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            self.lost = True
        except OSError:
            pass  # a file system in trouble can't tell
        else:
            self.lost = (found.st_dev, found.st_ino) != (held.st_dev, held.st_ino)
        return not self.lost

    def create(self) -> None:
        (self.path / FileName.LOGS).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)

    def write_spec_once(self, text: str) -> None:
        """A second delivery of the same launch finds the spec there and leaves it."""
        if (self.path / FileName.SPEC).exists():
            return
        temporary = self._temporary(FileName.SPEC)
        try:
            _write_private(temporary, text)
            os.link(temporary, self.path / FileName.SPEC)
        except FileExistsError:
            pass  # the other delivery was first, with the same words
        finally:
            temporary.unlink(missing_ok=True)

    def read_spec(self) -> AttemptSpec:
        return from_dict(AttemptSpec, json.loads((self.path / FileName.SPEC).read_text()))

    def write(self, name: str, text: str) -> None:
        """Replace a small file so that a reader sees the old or the new one, whole."""
        if self.lost:
            raise FileNotFoundError(errno.ENOENT, "the attempt's folder was removed", str(self.path))
        temporary = self._temporary(name)
        try:
            _write_private(temporary, text)
            temporary.replace(self.path / name)
        except OSError:
            temporary.unlink(missing_ok=True)  # on a full disk it would take what little space is left
            raise

    def _temporary(self, name: str) -> Path:
        """A name of this thread alone: two deliveries of one launch may write at once."""
        return self.path / f".{name}.{os.getpid()}.{threading.get_ident()}"

    def write_if_possible(self, name: str, text: str) -> None:
        """For files that only save work later: a full disk is no reason to stop."""
        try:
            self.write(name, text)
        except OSError:
            log.debug("%s could not be written", name, exc_info=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """A small file's object; None if it can't be read or is no object (cut by a full disk)."""
        try:
            value = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def was_started(self) -> bool:
        """A supervisor got its `go` here: lines exist. The folder is never started again."""
        outbox = self.path / FileName.OUTBOX
        return outbox.exists() and outbox.stat().st_size > 0

    def has_ended(self) -> bool:
        """The end was recorded by the supervisor or by the reaper."""
        return (self.path / FileName.REAPED).exists() or self.has_ended_line()

    def has_ended_line(self) -> bool:
        kind = f'"kind":"{EventKind.ENDED}"'.encode()
        return any(kind in line for line in last_lines(self.path / FileName.OUTBOX))

    def stop_request(self) -> StopMode | None:
        try:
            text = (self.path / FileName.STOP_REQUEST).read_text().strip()
        except FileNotFoundError:
            return None
        return StopMode(text) if text in tuple(StopMode) else None


class Lock:
    """Whoever holds it is the one process that may act on this attempt. It ends with its holder, however it dies.

    It is two locks in one. supervisor.lock says to people who lives in the folder; but a folder can be removed, with
    its supervisor alive, and made anew by a launch that comes twice. So its path is also taken as a name in the
    kernel's own list of local sockets, which no removal of files reaches.
    """

    def __init__(self, folder: AttemptFolder) -> None:
        self._path = folder / FileName.LOCK
        self._name = _socket_name(folder.path)
        self._fd: int | None = None
        self._socket: socket.socket | None = None

    def acquire(self) -> bool:
        """Where there is no folder, or none that can be used, the name alone is taken: no file is made."""
        taken = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            taken.bind(self._name)
        except OSError as error:
            taken.close()
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        try:
            self._fd = _flocked(self._path)
        except BlockingIOError:
            taken.close()
            return False
        self._socket = taken
        return True

    def sign(self) -> None:
        """Write who holds it, for people. A full disk is told by what comes next, not by this."""
        assert self._fd is not None, "sign() needs the lock"  # noqa: S101
        me = procfs.identity(os.getpid())
        holder = {"boot_id": procfs.boot_id(), "pid": os.getpid(), "start_time": me.start_time if me else 0}
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, json.dumps(holder).encode(), 0)
        except OSError:
            log.warning("%s could not be written", self._path, exc_info=True)

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def is_held(self) -> bool:
        """By another process. Asked without creating a file; a supervisor that starts in the same instant tries
        again, so the moment that the question takes the lock itself does no harm."""
        return _is_bound(self._name) or _is_flocked(self._path)


def _socket_name(path: Path) -> bytes:
    """An abstract socket's name is 107 bytes at most."""
    return b"\0grpo-attempt-" + hashlib.sha256(os.path.realpath(path).encode()).hexdigest().encode()


def _is_bound(name: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            return False
    return True


def _flocked(path: Path) -> int | None:
    """The locked file; None where there is none to be had. BlockingIOError: another process has it."""
    fd = _open_lock(path, os.O_CREAT)
    if fd is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno == errno.EBADF:  # NFS locks only what is open for writing
            return None
        raise
    return fd


def _open_lock(path: Path, create: int = 0) -> int | None:
    """Where nothing can be written a file can still be locked; where nothing can be read the name has to do."""
    for flags in (os.O_RDWR | create, os.O_RDONLY):
        try:
            return os.open(path, flags | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s: %s", path, error)
    return None


def _is_flocked(path: Path) -> bool:
    fd = _open_lock(path)
    if fd is None:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def last_lines(path: Path, *, limit: int = 65_536, whole: bool = True) -> list[bytes]:
    """Lines at the end of a file; with `whole`, not the one that has no end yet."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - limit))
            data = file.read(limit)
    except FileNotFoundError:
        return []
    lines = data.split(b"\n")
    if whole or not lines[-1]:
        lines.pop()
    return lines if size <= limit else lines[1:]


def _write_private(path: Path, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(text)
