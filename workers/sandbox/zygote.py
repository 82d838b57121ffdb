"""The prewarmed interpreter: forks once for every process of an evaluation, holds the deadlines, and reports the ends.

Single-threaded. It never sees what is run: a request comes over the fork's own socket, which the caller hands over
here unread. So there is nothing of another evaluation in the memory that a fork inherits.

A fork copies each page that it writes to, and Python writes wherever it reads. So what this process loads, and what a
fork does before it runs what it is there for, is as little as can be.
"""

from __future__ import annotations

import _socket
import errno
import gc
import os
import struct
import sys
from _socket import SCM_RIGHTS
from collections.abc import Callable

# By their names, not as attributes of modules: who looks something up there writes to more pages.
from os import O_RDWR, _exit, close, closerange, dup, dup2, getpid, kill, pidfd_open, times, waitpid, write
from os import open as open_file
from select import POLLIN, poll
from time import monotonic
from typing import Any

from workers.sandbox import candidate, kernel, lockdown, mapped, messages, orders, program, verifier, warming
from workers.sandbox.kernel import CLONE_NEWPID, fork, setns, unshare
from workers.sandbox.lockdown import Bounds
from workers.sandbox.lockdown import lock as lock_in
from workers.sandbox.orders import BEGIN, DEADLINE, KILL, NEVER_BEGAN, ORDER, ORDERED, PROGRAM, REPORT, TEST

COMMON = ("bisect", "collections", "functools", "heapq", "itertools", "math", "operator", "re", "string", "typing")
"""What models import all the time is there already."""

_FIRST_FREE = 3
"""Descriptors below are stdin, stdout and stderr."""
_HANDED_OVER_FROM = _FIRST_FREE + 1 + orders.MOST_JOBS
"""Those below are taken, so that no fork moves one onto another that it needs yet."""
_HIGHEST = 1 << 16
_CHANNELS = tuple(messages.Channel(_FIRST_FREE + place) for place in range(1 + orders.MOST_JOBS))
"""Of a fork; they are there before the descriptors are."""
_seeds: list[Callable[[], None]] = []
"""What Python does after its own fork; forks of ours would all draw the same numbers."""
_LEAVING_S = 1.0
"""What a candidate has to end by itself once its verifier judges the next one."""
_VERIFIER_GRACE_S = 2.0
"""What the verifier has beyond the candidate's time, to say which tests had no answer."""
_NOT_YET = float("inf")
"""The deadline of what lies ready: nothing but this package's own code has run there."""
_SIGKILL = 9
_ALONE, _BESIDE, _PROGRAM = range(3)
"""Places of filters."""
_MOST_LOCKS = 64
_FDS = struct.Struct("i")
_ORDER_BYTES = ORDER.size
_ROOM = _socket.CMSG_SPACE(orders.MOST_DESCRIPTORS * _FDS.size)


Lock = tuple[Bounds, bytes | None, int, int]
"""The arguments of lockdown.lock."""


class _Process:
    __slots__ = ("began", "deadline", "end", "number", "pidfd", "report", "verifier")

    def __init__(self, number: int, verifier: int, report: int, pidfd: int, began: float, deadline: float) -> None:
        """`verifier`: number of the one that judges it, 0 where there is none. `report`: -1 for a verifier."""
        self.number = number
        self.verifier = verifier
        self.report = report
        self.pidfd = pidfd
        self.began = began
        self.deadline = deadline
        self.end: int = orders.ITSELF


class Zygote:
    def __init__(self, control: _socket.socket, owner: int, filters: list[int], *, own_namespaces: bool) -> None:
        """`owner`: a pidfd of the process that all this is for. `filters`: addresses, for what is alone in a pid
        namespace, for what isn't, and for programs."""
        self._control = control
        self._own_namespaces = own_namespaces
        self._filters = filters
        self._processes: dict[int, _Process] = {}
        self._by_pidfd: dict[int, int] = {}
        self._by_number: dict[int, _Process] = {}
        self._verifiers: dict[int, list[Any]] = {}
        """By number: its process, the candidates' ends of its sockets, those that are free, and the number of the one
        that it judges."""
        self._poll = poll()
        self._poll.register(control.fileno(), POLLIN)
        self._poll.register(owner, POLLIN)
        self._owner = owner
        self._self = pidfd_open(getpid())
        self._held = lockdown.address_space()
        self._locks: dict[tuple[int, float, int, int], Lock] = {}
        self._used = _used()

    def serve(self) -> None:
        """Until the owner has gone or closed its end. The forks go with this process."""
        told = [(_socket.SOL_SOCKET, SCM_RIGHTS, struct.pack("i", self._self))]
        self._control.sendmsg([orders.READY], told)
        control = self._control.fileno()
        wait_ms: float | None = None
        while True:
            for fd, _ in self._poll.poll(wait_ms):
                if fd == self._owner or (fd == control and not self._take_order()):
                    return self._kill_all()
                if fd in self._by_pidfd:
                    self._reap(self._by_pidfd[fd])
            wait_ms = self._enforce() if self._processes else None

    def _enforce(self) -> float:
        """Milliseconds until the next deadline."""
        now = monotonic()
        first = now + 3600
        for pid, process in self._processes.items():
            if process.deadline <= now:
                self._kill(pid, DEADLINE)
                process.deadline = now + 1.0
            if process.deadline < first:
                first = process.deadline
        return (first - now) * 1000 + 1

    def _take_order(self) -> bool:
        try:
            data, ancillary, _, _ = self._control.recvmsg(_ORDER_BYTES, _ROOM)
        except ConnectionError:
            return False
        if not data:
            return False
        fds = [fd for _, _, packed in ancillary for (fd,) in _FDS.iter_unpack(packed)]
        self._start(ORDER.unpack(data), fds)
        return True

    def _start(self, order: tuple[int, int, float, int, int, int, int, int], fds: list[int]) -> None:
        """`order`: the fields of one."""
        what, number, seconds, memory, disk, verifier_number, jobs, begins = order
        if begins and begins != number:
            self._begin(begins, seconds)
        if what == BEGIN:
            return
        if what == KILL:
            for pid, process in self._processes.items():
                if process.number == number:
                    self._kill(pid, ORDERED)
            return
        if len(fds) < 4 + (what == PROGRAM or jobs > 0):
            return _refused(fds)
        report, out, error, channel = fds[:4]
        kind = _PROGRAM if what == PROGRAM else _ALONE if self._own_namespaces else _BESIDE
        lock = self._lock(kind, seconds, memory, disk)
        try:
            if what == TEST:
                if jobs:
                    self._start_verifier(verifier_number, seconds, memory, jobs, fds[4])
                lies_ready = begins != number
                serve = candidate.serve_ready if lies_ready else candidate.serve_candidate
                self._start_candidate(number, verifier_number, report, [0, out, error, channel], lock, serve)
                if not lies_ready:
                    self._begin(number, seconds)
            elif what == PROGRAM:
                self._fork(number, 0, seconds, report, [fds[4], out, error, channel], lock, program.run)
            else:
                self._fork(number, 0, seconds, report, [0, out, error, channel], lock, candidate.run_job)
        finally:
            for fd in fds:
                close(fd)

    def _begin(self, number: int, seconds: float) -> None:
        """The time of a candidate, which may have ended already, and its verifier's with it."""
        process = self._by_number.get(number)
        if process is None:
            return
        process.began = monotonic()
        process.deadline = process.began + seconds
        judge = self._verifiers.get(process.verifier)
        if judge is None:
            return
        judge[0].deadline = process.deadline + _VERIFIER_GRACE_S
        before = self._by_number.get(judge[2])
        if before is not None:  # it is judged, and was to end by itself
            before.deadline = min(before.deadline, process.began + _LEAVING_S)
        judge[2] = number

    def _lock(self, kind: int, seconds: float, memory: int, disk: int) -> Lock:
        """What a fork gives up. `kind`: which filter is its."""
        key = (kind, seconds, memory, disk)
        lock = self._locks.get(key)
        if lock is None:
            apart = self._own_namespaces and kind != _BESIDE
            disk = disk if apart else 0
            bounds = lockdown.limits(seconds, self._held + memory, disk)
            tmpfs = lockdown.tmpfs_options(disk) if disk else None
            if len(self._locks) == _MOST_LOCKS:
                self._locks.clear()
            lock = self._locks[key] = (bounds, tmpfs, 0 if apart else _SIGKILL, self._filters[kind])
        return lock

    def _start_verifier(self, number: int, seconds: float, memory: int, jobs: int, verdict: int) -> None:
        """With a socket for each candidate that it shall judge."""
        theirs: list[int] = []
        free: list[int] = []
        try:
            for _ in range(jobs):
                one, other = _socket.socketpair()
                theirs.append(one.detach())
                free.append(other.detach())
        except OSError:  # too many are open: it judges no more than it has sockets, be it none
            if not free:
                return
        seconds = (seconds + _VERIFIER_GRACE_S) * jobs
        lock = self._lock(_BESIDE, seconds, memory, 0)
        started = self._fork(number, 0, _NOT_YET, -1, [0, 0, 0, verdict, *theirs], lock, verifier.verify)
        for fd in theirs:
            close(fd)
        if started is None:
            for fd in free:
                close(fd)
        else:
            self._verifiers[number] = [started, free[::-1], 0]

    def _start_candidate(
        self, number: int, verifier_number: int, report: int, fds: list[int], lock: Lock, serve: Callable[..., None]
    ) -> None:
        judge = self._verifiers.get(verifier_number)
        free = judge[1] if judge is not None else None
        if not free:
            _tell(report, NEVER_BEGAN, errno.ESRCH)
            return
        peer = free.pop()
        fds.append(peer)
        self._fork(number, verifier_number, _NOT_YET, report, fds, lock, serve)
        close(peer)

    def _fork(
        self,
        number: int,
        verifier_number: int,
        seconds: float,
        report: int,
        fds: list[int],
        lock: Lock,
        run: Callable[..., None],
    ) -> _Process | None:
        """None: it could not be, which was told."""
        began = monotonic()
        try:
            pid = fork() if lock[2] else self._fork_apart()
        except OSError as failed:
            _tell(report, NEVER_BEGAN, failed.errno or 0)
            return None
        if pid == 0:
            _become(fds, lock, run)
        pidfd = pidfd_open(pid)
        report = report if report < 0 else dup(report)
        process = _Process(number, verifier_number, report, pidfd, began, began + seconds)
        self._processes[pid] = self._by_number[number] = process
        self._by_pidfd[pidfd] = pid
        self._poll.register(pidfd, POLLIN)
        return process

    def _fork_apart(self) -> int:
        """A fork that is process 1 of a pid namespace of its own."""
        unshare(CLONE_NEWPID)
        try:
            pid = fork()
        except OSError:
            setns(self._self, CLONE_NEWPID)
            raise
        if pid:
            setns(self._self, CLONE_NEWPID)
        return pid

    def _reap(self, pid: int) -> None:
        _, status = waitpid(pid, 0)
        before, self._used = self._used, _used()
        process = self._processes.pop(pid)
        del self._by_pidfd[process.pidfd], self._by_number[process.number]
        self._poll.unregister(process.pidfd)
        close(process.pidfd)
        if process.report >= 0:
            _tell(process.report, process.end, status, monotonic() - process.began, self._used - before)
            close(process.report)
            return
        for fd in self._verifiers.pop(process.number)[1]:
            close(fd)
        for other, each in self._processes.items():
            if each.verifier == process.number:
                self._kill(other, ORDERED)

    def _kill(self, pid: int, end: int) -> None:
        """It is not reaped yet, so the pid is its own."""
        process = self._processes[pid]
        if process.end == orders.ITSELF:
            process.end = end
        kill(pid, _SIGKILL)

    def _kill_all(self) -> None:
        for pid in list(self._processes):
            self._kill(pid, ORDERED)
        for pid in list(self._processes):
            waitpid(pid, 0)


def _used() -> float:
    """Processor seconds of all children that have ended. wait4 tells of each, and imports a module for its answer."""
    _, _, user, system, _ = times()
    return user + system


def _tell(report: int, end: int, status: int, seconds: float = 0.0, processor_seconds: float = 0.0) -> None:
    """The fields of a Report. A verifier's end is told by its channel's."""
    if report < 0:
        return
    try:
        write(report, REPORT.pack(end, status, seconds, processor_seconds))
    except OSError:
        return  # a caller that no longer wants it


def _refused(fds: list[int]) -> None:
    """There was no room here for all descriptors of an order."""
    if fds:
        _tell(fds[0], NEVER_BEGAN, errno.EMFILE)
    for fd in fds:
        close(fd)


def _become(fds: list[int], lock: Lock, run: Callable[..., None]) -> None:
    """In the fork: `fds` become 0, 1, 2 …, and nothing else stays open. Never returns."""
    code = 1
    try:
        if fds[0] == 0:  # anew: flags and locks of an open file are seen by all that share it
            dup2(open_file("/dev/null", O_RDWR), 0)
        for place, fd in enumerate(fds):
            if fd != place:
                dup2(fd, place)
        closerange(len(fds), _HIGHEST)
        channels = _CHANNELS[: len(fds) - _FIRST_FREE]
        try:
            lock_in(*lock)
        except OSError as failed:
            said = {"kind": "killed", "value": None, "message": f"It could not be locked in: {failed}", "traceback": ""}
            channels[0].send(said)
            _exit(code)
        for seed in _seeds:
            seed()
        run(*channels)
        code = 0
    finally:
        _exit(code)


def main(settings: dict[str, Any]) -> None:
    """`settings`: control and owner (descriptors), backend, filters (as seccomp.py makes them: for what is alone in a
    pid namespace, for what isn't, and for programs), preload (modules), readable (folders)."""
    for name in (*COMMON, *settings["preload"]):
        __import__(name)
    backend = settings["backend"]
    lockdown.limit_zygote()
    if backend == "landlock":
        from workers.sandbox import landlock

        lockdown.give_up_root(settings["readable"])
        landlock.restrict(settings["readable"], ("/dev/null",))
    apart = backend == "bubblewrap"
    filters = [kernel.Filter(code) for code in settings["filters"]]
    held = not filters or lockdown.takes(filters[0])
    if not held and backend != "bare":
        raise OSError(errno.ENOSYS, "The kernel refuses seccomp filters")
    mapped.inherit()
    warming.warm()
    sys.argv = [""]
    control = _socket.socket(fileno=settings["control"])
    addresses = [one.address for one in filters] if held and filters else [0, 0, 0]
    zygote = Zygote(control, settings["owner"], addresses, own_namespaces=apart)
    if "random" in sys.modules:
        _seeds.append(sys.modules["random"].seed)
    settings.clear()
    while os.dup(0) < _HANDED_OVER_FROM:
        pass
    gc.collect()
    gc.freeze()
    zygote.serve()
