"""An attempt's folder: its paths, its small files, and its lock."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import threading
from pathlib import Path
from typing import Any, NamedTuple

from workers.contract.reports.lines import read_line
from workers.contract.run import corpora
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire import local_sockets
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EndReason, EventKind, FileName, StopMode
from workers.supervisor.processes import procfs
from workers.supervisor.processes.procfs import Identity

log = logging.getLogger(__name__)

_RUN_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class AttemptFolder:
    """The folder RUNS_DIR/<run>/<attempt number>/."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = False
        """True if the folder was removed while it was held: nothing more is written to it, and it isn't recreated."""
        self._fd: int | None = None

    @classmethod
    def of(cls, runs_dir: Path, run_id: str, number: int) -> "AttemptFolder":
        """Return an attempt's folder, which needn't exist. Raises ValueError for an invalid run id."""
        if not _RUN_ID.fullmatch(run_id):
            raise ValueError(f"{run_id!r} is not a run id")
        return cls(runs_dir / run_id / str(int(number)))

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def log(self, name: str) -> Path:
        return self.path / FileName.LOGS / f"{name}.log"

    def hold(self) -> None:
        """Keep this folder open, so that check() recognises a folder created later under the same name."""
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def check(self) -> bool:
        """Return whether the held folder still exists. The open file descriptor keeps its inode from being reused."""
        if self._fd is None or self.lost:
            return not self.lost
        try:
            opened_stat, current_stat = os.fstat(self._fd), os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            self.lost = True
        except OSError:
            pass  # an error of the file system says nothing about the folder
        else:
            self.lost = (current_stat.st_dev, current_stat.st_ino) != (opened_stat.st_dev, opened_stat.st_ino)
        return not self.lost

    def create(self) -> None:
        (self.path / FileName.LOGS).mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.chmod(0o700)

    def write_spec_once(self, text: str) -> None:
        """Write the spec unless it exists, as when the same launch is delivered twice."""
        if (self.path / FileName.SPEC).exists():
            return
        temporary = self._temporary(FileName.SPEC)
        try:
            _write_private(temporary, text)
            os.link(temporary, self.path / FileName.SPEC)
        except FileExistsError:
            pass  # the other delivery was first, with the same content
        finally:
            temporary.unlink(missing_ok=True)

    def read_spec(self) -> AttemptSpec:
        return from_dict(AttemptSpec, json.loads((self.path / FileName.SPEC).read_text()))

    def write(self, name: str, text: str) -> None:
        """Replace a small file atomically."""
        if self.lost:
            raise FileNotFoundError(errno.ENOENT, "the attempt's folder was removed", str(self.path))
        temporary = self._temporary(name)
        try:
            _write_private(temporary, text)
            temporary.replace(self.path / name)
        except OSError:
            temporary.unlink(missing_ok=True)  # on a full disk it would use the remaining space
            raise

    def _temporary(self, name: str) -> Path:
        # Unique to this thread: two deliveries of one launch may write at once.
        return self.path / f".{name}.{os.getpid()}.{threading.get_ident()}"

    def write_if_possible(self, name: str, text: str) -> None:
        """Write an optional file that only saves work later; ignore errors such as a full disk."""
        try:
            self.write(name, text)
        except OSError:
            log.debug("%s could not be written", name, exc_info=True)

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Read a small file's JSON object; return None if it is unreadable or incomplete."""
        try:
            value = json.loads((self.path / name).read_text())
        except (OSError, ValueError):
            return None
        return value if isinstance(value, dict) else None

    def recorded(self) -> set[Identity]:
        """Return the processes in FileName.PIDS; an empty set if it was written before a reboot, as pids are reused."""
        pids = self.read_json(FileName.PIDS) or {}
        if pids.get("boot_id") != procfs.boot_id():
            return set()
        return {Identity(int(pid), int(start)) for pid, start in pids.get("processes", [])}

    def remove_unfinished(self) -> None:
        """Remove a job's unfinished files and the corpora's indexes, which nothing uses once the processes are gone."""
        for path in (self.path / FileName.UNFINISHED, *corpora.index_folders(self.path)):
            shutil.rmtree(path, ignore_errors=True)

    def was_started(self) -> bool:
        """Return whether a supervisor got its `go` here and wrote lines. Such a folder is never started again."""
        outbox = self.path / FileName.OUTBOX
        return outbox.exists() and outbox.stat().st_size > 0

    def has_ended(self) -> bool:
        """Return whether the supervisor or the reaper has recorded the end."""
        return (self.path / FileName.REAPED).exists() or self.has_ended_line()

    def has_ended_line(self) -> bool:
        lines = map(read_line, last_lines(self.path / FileName.OUTBOX))
        return any(line is not None and line.kind == EventKind.ENDED for line in lines)

    def request_stop(self, mode: StopMode) -> bool:
        """Write a stop request, which the supervisor checks for at each tick; return False if the attempt is not on
        this host (yet): the response to its claim will then include the stop."""
        if not self.path.is_dir():
            return False
        if self.stop_request() != StopMode.NOW:
            self.write(FileName.STOP_REQUEST, mode)
        return True

    def stop_request(self) -> StopMode | None:
        try:
            text = (self.path / FileName.STOP_REQUEST).read_text().strip()
        except FileNotFoundError:
            return None
        return StopMode(text) if text in tuple(StopMode) else None

    def mark_watched(self) -> bool:
        """Record that somebody has opened the run's page; return False if the attempt is not on this host or has
        ended."""
        if not self.path.is_dir() or self.has_ended():
            return False
        self.write_if_possible(FileName.WATCHED, "")
        return True

    def take_watched(self) -> bool:
        """Return whether somebody has opened the run's page since the last call, and clear that mark."""
        try:
            (self.path / FileName.WATCHED).unlink()
        except OSError:
            return False
        return True

    def host_stop(self) -> "HostStop":
        """Read why and how the host stops the attempt. Without that file, something else sent the SIGTERM."""
        content = self.read_json(FileName.HOST_STOP) or {}
        reason, within_s = content.get("reason"), content.get("within_s")
        if reason not in (EndReason.HOST_SHUTDOWN, EndReason.HOST_PREEMPTED):
            return HostStop(EndReason.PREEMPTED, saves=False)
        within_s = within_s if isinstance(within_s, int | float) else None
        return HostStop(EndReason(reason), saves=content.get("save") is True, within_s=within_s)


class HostStop(NamedTuple):
    reason: EndReason
    saves: bool
    within_s: float | None = None
    """Seconds until the attempt must be over; None if unknown."""


class Lock:
    """The lock of the one process that may act on this attempt. It is released when its holder dies, however it dies.
    It consists of two locks. supervisor.lock shows people which process uses the folder; but a folder can be removed
    during a run, and recreated by a repeated launch. So its path is also bound as the name of an abstract Unix socket,
    which the removal of files doesn't affect. Any user may bind such a name, so it is respected only if its holder is
    root, this user or the folder's owner."""

    def __init__(self, folder: AttemptFolder) -> None:
        self._path = folder / FileName.LOCK
        self._name = _socket_name(folder.path)
        self._fd: int | None = None
        self._socket: socket.socket | None = None

    def acquire(self) -> bool:
        """Acquire the lock and return True, or return False if it is held. Without a usable folder, only the name is
        locked."""
        name_socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            name_socket.bind(self._name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                name_socket.close()
                raise
            if self._is_named():
                name_socket.close()
                return False
            log.warning("another user holds the name of %s: the file alone is locked", self._path)
        try:
            self._fd = _flocked(self._path)
        except BlockingIOError:
            name_socket.close()
            return False
        self._socket = name_socket
        return True

    def sign(self) -> None:
        """Write the holder's identity to the lock file, if possible."""
        assert self._fd is not None, "sign() needs the lock"  # noqa: S101
        identity = procfs.identity(os.getpid())
        holder = {"boot_id": procfs.boot_id(), "pid": os.getpid(), "start_time": identity.start_time if identity else 0}
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
        """Return whether another process holds the lock, without creating a file. This acquires the file's lock
        briefly, which does no harm: a starting supervisor retries."""
        return self._is_named() or _is_flocked(self._path)

    def _is_named(self) -> bool:
        """Return whether the name is bound by a user who may hold the lock."""
        if not _is_bound(self._name):
            return False
        try:
            holder = local_sockets.owner(self._name)
        except OSError as error:
            log.warning("can't determine who holds the name of %s: %s", self._path, error)
            return True
        return holder in {0, os.getuid(), _owner(self._path.parent)}


def _socket_name(path: Path) -> bytes:
    # An abstract socket's name has at most 107 bytes.
    return b"\0grpo-attempt-" + hashlib.sha256(os.path.realpath(path).encode()).hexdigest().encode()


def _is_bound(name: bytes) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            return False
        except OSError as error:
            if error.errno != errno.EPROTOTYPE:  # a socket of another type than ours
                raise
            return False
    return True


def _owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def _flocked(path: Path) -> int | None:
    """Lock the file and return its descriptor, or None if it can't be opened or locked. Raises BlockingIOError if
    another process has the lock."""
    fd = _open_lock(path, os.O_CREAT)
    if fd is None:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        if error.errno == errno.EBADF:  # NFS locks only files open for writing
            return None
        raise
    return fd


def _open_lock(path: Path, create: int = 0) -> int | None:
    # Unwritable files can still be locked; unreadable ones can't, so only the name is.
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
    """Return the lines within the last `limit` bytes of a file; with `whole`, omit an incomplete last line."""
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
