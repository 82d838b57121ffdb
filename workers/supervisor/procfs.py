"""Processes as the kernel shows them: identities that survive pid reuse, trees, signals that cannot go astray."""

from __future__ import annotations

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
    """A pid is reused; a pid with its start time (clock ticks since boot) is not, within one boot."""

    pid: int
    start_time: int


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
        """A zombie holds nothing but its pid; unless only its first thread has ended. Then the others still hold the
        memory, the GPUs and the ports of all, and nobody can reap it.
        """
        return self.state not in "ZX" or self.threads > 1


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read(pid: int) -> Process | None:
    """The process, or None if there is none of that pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            stat = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name may hold spaces and parentheses (a process chooses its own), so fields count from the last one.
    f = stat[stat.rindex(b")") + 2 :].split()
    return Process(pid, int(f[19]), chr(f[0][0]), int(f[1]), int(f[2]), int(f[4]), int(f[17]), int(f[21]) * _PAGE)


def table() -> list[Process]:
    """All that live. Listed again until a listing has nobody new: who forks and ends between a listing and the look at
    its pids would be missed together with the child."""
    rows: list[Process | None] = []
    known: set[str] = set()
    for _ in range(_LISTINGS):
        fresh = [name for name in os.listdir("/proc") if name.isdigit() and name not in known]
        if not fresh:
            break
        known.update(fresh)
        rows += [read(int(name)) for name in fresh]
    return [row for row in rows if row is not None]


def identity(pid: int) -> Identity | None:
    row = read(pid)
    return row.identity if row else None


def descendants(roots: Iterable[int], rows: list[Process]) -> list[Process]:
    """Everything below the roots, without the roots themselves."""
    children: dict[int, list[Process]] = {}
    for row in rows:
        children.setdefault(row.ppid, []).append(row)
    found: list[Process] = []
    seen: set[int] = set(roots)
    waiting = list(seen)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.pid not in seen:
                seen.add(child.pid)
                found.append(child)
                waiting.append(child.pid)
    return found


def send(target: Identity, number: signal.Signals) -> bool:
    """Signal exactly this process; False if it is gone, also when its pid belongs to another one now, and if it is
    another user's (sudo), whom we may not signal."""
    try:
        fd = os.pidfd_open(target.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor holds one process. If the pid's start time is the recorded one after it was opened, that
        # process is the recorded one.
        if identity(target.pid) != target:
            return False
        signal.pidfd_send_signal(fd, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(fd)
    return True


def working_directory(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return None  # gone, a zombie, or another user's


def user(pid: int) -> int | None:
    """Who it runs as; None if it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("Uid:")), None)


def become_subreaper() -> None:
    """Orphans of our tree come to us instead of to pid 1, whatever session they made for themselves."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def become_undumpable() -> None:
    """Nobody of the same user reads our memory (it holds the token) or our environment through /proc."""
    _prctl(_PR_SET_DUMPABLE, 0)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
