"""Processes in /proc: identities that survive pid reuse, process trees, and signals to exactly one process."""

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_LISTINGS = 20


class Identity(NamedTuple):
    """A process's identity: pids are reused, but a pid with its start time is unique within one boot."""

    pid: int
    start_time: int
    """Time of the process's start, in clock ticks since boot."""


class Process(NamedTuple):
    pid: int
    start_time: int
    state: str
    ppid: int
    group: int
    tty: int
    threads: int
    rss_bytes: int

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_time)

    @property
    def alive(self) -> bool:
        """True if the process may hold memory, GPUs and ports. A zombie holds nothing but its pid, unless only its
        first thread has ended."""
        return self.state not in "ZX" or self.threads > 1


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read(pid: int) -> Process | None:
    """Read a process from /proc; return None if the pid doesn't exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may contain spaces and parentheses (processes choose it), so fields count from the last one.
    f = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(f[19]), chr(f[0][0]), int(f[1]), int(f[2]), int(f[4]), int(f[17]), int(f[21]) * _PAGE)


def table() -> list[Process]:
    """Return all processes. The listing is repeated until it shows no new pid: otherwise a process that forks and
    exits between listing and reading would be missed together with its child."""
    rows: list[Process | None] = []
    listed_names: set[str] = set()
    for _ in range(_LISTINGS):
        new_names = [name for name in os.listdir("/proc") if name.isdigit() and name not in listed_names]
        if not new_names:
            break
        listed_names.update(new_names)
        rows += [read(int(name)) for name in new_names]
    return [row for row in rows if row is not None]


def identity(pid: int) -> Identity | None:
    row = read(pid)
    return row.identity if row else None


def descendants(roots: Iterable[int], rows: list[Process]) -> list[Process]:
    """Return all descendants of the roots, excluding the roots themselves."""
    children: dict[int, list[Process]] = {}
    for row in rows:
        children.setdefault(row.ppid, []).append(row)
    found_rows: list[Process] = []
    visited: set[int] = set(roots)
    unvisited = list(visited)
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child.pid not in visited:
                visited.add(child.pid)
                found_rows.append(child)
                unvisited.append(child.pid)
    return found_rows


def send(target: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process and return True. Return False if it is gone, even if its pid has been reused, or if
    we may not signal it because it belongs to another user."""
    try:
        fd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor refers to one process: the intended one if the start time matches after opening it.
        if identity(target.pid) != target:
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def working_directory(pid: int) -> str | None:
    """Return a process's working directory, or None if it can't be read."""
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None  # gone, a zombie, or another user's


def user(pid: int) -> int | None:
    """Return the uid that a process runs as, or None if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def become_subreaper() -> None:
    """Adopt the orphans among our descendants, whatever sessions they created."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become_undumpable() -> None:
    """Keep other processes of the same user from reading our environment and our memory, which contains the token."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
