"""The zygote, a prewarmed interpreter that forks the processes of evaluations, enforces deadlines and reports exits.

It has one thread, and never sees the code that is run: a request travels over the fork's own socket, which the caller
passes through the zygote unread. So a fork inherits nothing from another evaluation.
"""

import array
import errno
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from select import POLLIN, poll
from time import monotonic
from typing import Any

from workers.sandbox import candidate, rehearsal, verifier, zygote_protocol
from workers.sandbox.isolation import kernel, landlock, lockdown
from workers.sandbox.isolation.lockdown import ResourceLimits
from workers.sandbox.messages import Channel
from workers.sandbox.zygote_protocol import ExitReport, ForkOrder

COMMON_MODULES = (
    "bisect",
    "collections",
    "functools",
    "heapq",
    "itertools",
    "math",
    "operator",
    "re",
    "string",
    "typing",
)

_FIRST_CHANNEL = 3
_MAX_DESCRIPTOR = 1 << 16
_VERIFIER_GRACE_S = 2.0
"""Seconds by which a verifier may outlive its candidate's deadline, to report the tests without a reply."""
_OWN_NAMESPACES, _SHARED_NAMESPACES, _PROGRAM = range(3)
_ANCILLARY_BYTES = socket.CMSG_SPACE(zygote_protocol.MAX_DESCRIPTORS * array.array("i").itemsize)


@dataclass(slots=True)
class _ForkedProcess:
    number: int
    report: int
    """Descriptor on which to report the exit; -1 for a verifier."""
    pidfd: int
    began: float
    deadline: float
    end: int = zygote_protocol.EXITED


class Zygote:
    """The main loop of the zygote, with the forks that are alive."""

    def __init__(self, control: socket.socket, owner: int, filters: list[int], *, own_namespaces: bool) -> None:
        """Measure this process. `owner`: a pidfd of the process that owns this sandbox. `filters`: addresses of the
        seccomp filters for processes with their own pid namespace, for other processes, and for programs."""
        self._control = control
        self._owner = owner
        self._filters = filters
        self._own_namespaces = own_namespaces
        self._processes: dict[int, _ForkedProcess] = {}
        self._pid_of: dict[int, int] = {}
        self._poll = poll()
        self._poll.register(control.fileno(), POLLIN)
        self._poll.register(owner, POLLIN)
        self._self = os.pidfd_open(os.getpid())
        self._address_space = lockdown.address_space()
        self._processor_seconds = _processor_seconds()

    def serve(self) -> None:
        """Carry out orders until the owner has ended or closed its end. The forks end with this process."""
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self._self]).tobytes())]
        self._control.sendmsg([zygote_protocol.READY], rights)
        control = self._control.fileno()
        wait_ms: float | None = None
        while True:
            for fd, _ in self._poll.poll(wait_ms):
                if fd == self._owner or (fd == control and not self._receive_order()):
                    return self._kill_all()
                if fd in self._pid_of:
                    self._reap(self._pid_of[fd])
            wait_ms = self._enforce_deadlines() if self._processes else None

    def _enforce_deadlines(self) -> float:
        now = monotonic()
        for pid, process in self._processes.items():
            if process.deadline <= now:
                self._kill(pid, zygote_protocol.DEADLINE)
                process.deadline = now + 1.0
        return (min(process.deadline for process in self._processes.values()) - now) * 1000 + 1

    def _receive_order(self) -> bool:
        try:
            data, ancillary, _, _ = self._control.recvmsg(zygote_protocol.ORDER_BYTES, _ANCILLARY_BYTES)
        except ConnectionError:
            return False
        if not data:
            return False
        fds = [fd for _, _, packed in ancillary for fd in array.array("i", packed)]
        order = ForkOrder.unpack(data)
        try:
            if order.kind == zygote_protocol.KILL:
                self._kill_evaluation(order.number)
            elif len(fds) == zygote_protocol.DESCRIPTORS[order.kind]:
                self._start(order, fds)
            elif fds:  # this process had too few free descriptors to receive all of them
                _report(fds[0], ExitReport(zygote_protocol.NEVER_BEGAN, errno.EMFILE))
        finally:
            for fd in fds:
                os.close(fd)
        return True

    def _start(self, order: ForkOrder, fds: list[int]) -> None:
        report, out, error, channel = fds[:4]
        if order.kind == zygote_protocol.TEST:
            self._start_test(order, report, [0, out, error, channel], fds[4])
        elif order.kind == zygote_protocol.PROGRAM:
            self._fork(order, _PROGRAM, report, [fds[4], out, error, channel], _become_program)
        else:
            stdin = fds[4] if order.kind == zygote_protocol.READING_JOB else 0
            self._fork(order, _OWN_NAMESPACES, report, [stdin, out, error, channel], candidate.run_job)

    def _start_test(self, order: ForkOrder, report: int, fds: list[int], verdict: int) -> None:
        try:
            candidates_end, verifiers_end = socket.socketpair()
        except OSError as failed:
            return _report(report, ExitReport(zygote_protocol.NEVER_BEGAN, failed.errno or 0))
        with candidates_end, verifiers_end:
            verifier_order = order._replace(seconds=order.seconds + _VERIFIER_GRACE_S, disk=0)
            verifier_fds = [0, 0, 0, verdict, verifiers_end.fileno()]
            if self._fork(verifier_order, _SHARED_NAMESPACES, report, verifier_fds, verifier.verify, reports=False):
                fds.append(candidates_end.fileno())
                self._fork(order, _OWN_NAMESPACES, report, fds, candidate.serve_candidate)

    def _fork(
        self,
        order: ForkOrder,
        kind: int,
        report: int,
        fds: list[int],
        run: Callable[..., None],
        *,
        reports: bool = True,
    ) -> bool:
        """Fork a process, and return whether that succeeded; report a failure. `kind`: an index into the filters.
        `reports`: whether the exit of the process is reported too."""
        is_isolated = self._own_namespaces and kind != _SHARED_NAMESPACES
        began = monotonic()
        try:
            pid = self._fork_isolated() if is_isolated else os.fork()
        except OSError as failed:
            _report(report, ExitReport(zygote_protocol.NEVER_BEGAN, failed.errno or 0))
            return False
        if pid == 0:
            _become(fds, lambda: self._lock_down(order, kind, is_isolated=is_isolated), run)
        pidfd = os.pidfd_open(pid)
        exit_report = os.dup(report) if reports else -1
        self._processes[pid] = _ForkedProcess(order.number, exit_report, pidfd, began, began + order.seconds)
        self._pid_of[pidfd] = pid
        self._poll.register(pidfd, POLLIN)
        return True

    def _fork_isolated(self) -> int:
        kernel.unshare(kernel.CLONE_NEWPID)
        try:
            pid = os.fork()
        except OSError:
            kernel.setns(self._self, kernel.CLONE_NEWPID)
            raise
        if pid:
            kernel.setns(self._self, kernel.CLONE_NEWPID)
        return pid

    def _lock_down(self, order: ForkOrder, kind: int, *, is_isolated: bool) -> None:
        disk = order.disk if is_isolated else 0
        lockdown.lock(
            ResourceLimits(order.seconds, self._address_space + order.memory, disk),
            tmpfs_bytes=disk,
            dies_with_parent=not is_isolated,
            filter_address=self._filters[kind],
        )

    def _reap(self, pid: int) -> None:
        _, status = os.waitpid(pid, 0)
        before, self._processor_seconds = self._processor_seconds, _processor_seconds()
        process = self._processes.pop(pid)
        del self._pid_of[process.pidfd]
        self._poll.unregister(process.pidfd)
        os.close(process.pidfd)
        if process.report < 0:  # a candidate has nothing to do once its verifier has ended
            return self._kill_evaluation(process.number)
        seconds, processor_seconds = monotonic() - process.began, self._processor_seconds - before
        _report(process.report, ExitReport(process.end, status, seconds, processor_seconds))
        os.close(process.report)

    def _kill_evaluation(self, number: int) -> None:
        for pid, process in self._processes.items():
            if process.number == number and process.report >= 0:
                self._kill(pid, zygote_protocol.KILLED_ON_ORDER)

    def _kill(self, pid: int, end: int) -> None:
        # The process has not been reaped yet, so the pid is still its own.
        process = self._processes[pid]
        if process.end == zygote_protocol.EXITED:
            process.end = end
        os.kill(pid, signal.SIGKILL)

    def _kill_all(self) -> None:
        for pid in self._processes:
            self._kill(pid, zygote_protocol.KILLED_ON_ORDER)
        for pid in self._processes:
            os.waitpid(pid, 0)


def _processor_seconds() -> float:
    """Return the processor time of all ended children. (Python's wait4 would import a module in every call.)"""
    times = os.times()
    return times.children_user + times.children_system


def _report(fd: int, report: ExitReport) -> None:
    try:
        os.write(fd, report.pack())
    except OSError:
        return  # the caller has closed the pipe


def _become(fds: list[int], lock_down: Callable[[], None], run: Callable[..., None]) -> None:
    """Renumber the fork's `fds` as 0, 1, 2 …, close all others, lock the fork down, and call `run`. Never return."""
    code = 1
    try:
        if fds[0] == 0:  # opened again, because processes that share an open file share its flags and locks
            os.dup2(os.open("/dev/null", os.O_RDWR), 0)
        for number, fd in enumerate(fds):
            if fd != number:
                os.dup2(fd, number)
        os.closerange(len(fds), _MAX_DESCRIPTOR)
        channels = [Channel(number) for number in range(_FIRST_CHANNEL, len(fds))]
        try:
            lock_down()
        except OSError as failed:
            message = f"It could not be locked down: {failed}"
            channels[0].send({"kind": "killed", "value": None, "message": message, "traceback": ""})
            os._exit(code)
        run(*channels)
        code = 0
    finally:
        os._exit(code)


def _become_program(channel: Channel) -> None:
    """Replace this process with the trusted program in `channel`'s request. If that fails, report the error and exit
    with 127."""
    argv = channel.receive()["argv"]
    os.set_inheritable(channel.fd, False)
    try:
        os.execve(argv[0], argv, {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": lockdown.WORK})  # noqa: S606  chosen by the caller, never by the model
    except OSError as error:
        message = f"{argv[0]}: {error.strerror}"
        channel.send({"kind": "error", "value": None, "message": message, "traceback": ""})
        os._exit(127)


def main(settings: dict[str, Any]) -> None:
    """Run the zygote. `settings`: control and owner (descriptors), backend, filters (from seccomp.py, in the order of
    Zygote's argument), preload (modules), readable (folders)."""
    for name in (*COMMON_MODULES, *settings["preload"]):
        __import__(name)
    backend = settings["backend"]
    lockdown.limit_zygote()
    if backend == "landlock":
        lockdown.give_up_root(settings["readable"])
        landlock.restrict(settings["readable"], ("/dev/null",))
    filters = [kernel.SeccompFilter(code) for code in settings["filters"]]
    is_accepted = not filters or lockdown.is_filter_accepted(filters[0])
    if not is_accepted and backend != "bare":
        raise OSError(errno.ENOSYS, "The kernel refuses seccomp filters")
    addresses = [filter_.address for filter_ in filters] if is_accepted and filters else [0, 0, 0]
    control = socket.socket(fileno=settings["control"])
    zygote = Zygote(control, settings["owner"], addresses, own_namespaces=backend == "bubblewrap")
    sys.argv = [""]
    settings.clear()
    rehearsal.rehearse()
    while (
        os.dup(0) < zygote_protocol.MAX_DESCRIPTORS
    ):  # so that no fork moves a descriptor onto one that it still needs
        pass
    gc.collect()
    gc.freeze()
    zygote.serve()
