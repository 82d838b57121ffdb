"""Starts a zygote on a backend, and holds what the caller has of it: a control socket and a pidfd."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import threading
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO

from workers.sandbox import bubblewrap, forked, orders, places, seccomp
from workers.sandbox.lockdown import WORK
from workers.sandbox.outcomes import Backend, SandboxUnavailable

_START_S = 60.0
"""Modules to preload may be large, and the machine busy."""
_ABOVE_STDIO = 10
_BOOT = """
import sys, types
package, settings = {package!r}, {settings!r}
for name, path in (("workers", None), ("workers.sandbox", package)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path] if path else []
sys.path += {libraries!r}
from workers.sandbox import zygote
zygote.main(settings)
"""
"""Without the package's __init__, which is the caller's side and would only make each fork larger."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK,
    "LANG": "C.UTF-8",
    # What is linked at the first call is linked in every fork anew.
    "LD_BIND_NOW": "1",
    # A library that starts threads when it is imported would make forks of a process with threads.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Gone(OSError):
    """The zygote has ended, or was closed."""


class Zygote:
    """The caller's side of one. Thread-safe: each order is one packet."""

    def __init__(self, control: socket.socket, pidfd: int, process: subprocess.Popen[bytes]) -> None:
        self._control = control
        self._pidfd = pidfd
        self._process = process
        self._lock = threading.Lock()
        self._closed = False
        forked.tell(self)

    @property
    def pid(self) -> int:
        """As this process sees it. Raises ProcessLookupError when it has gone."""
        with self._lock, open(f"/proc/self/fdinfo/{self._pidfd}", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        if int(fields["Pid"]) <= 0:
            raise ProcessLookupError("The zygote has gone.")
        return int(fields["Pid"])

    def alive(self) -> bool:
        """False once it has ended, however."""
        poll = select.poll()
        with self._lock:
            if self._closed:
                return False
            poll.register(self._pidfd, select.POLLIN)
            return not poll.poll(0)

    def send(self, order: bytes, descriptors: Sequence[int] = ()) -> None:
        """Never waits: a zygote that has left hundreds of orders lying hangs. Raises Gone, and OSError for what lacks
        here."""
        with self._lock:
            if self._closed:
                raise Gone(errno.EPIPE, "The sandbox's own process was ended.")
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            try:
                self._control.sendmsg([order], rights, socket.MSG_DONTWAIT)
            except ConnectionError as error:
                raise Gone(error.errno, error.strerror) from None

    def close(self) -> None:
        """Kill it with all its forks, and wait. Harmless when repeated."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._control.close()
            os.close(self._pidfd)
        self._process.wait()

    def left_in_fork(self) -> None:
        """The parent's, which goes on with it."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            self._control.close()
            os.close(self._pidfd)
        self._process.returncode = 0  # no child of this process, so nothing to wait for


def start(backend: Backend, preload: Sequence[str]) -> Zygote:
    """Raises SandboxUnavailable with what bubblewrap, the kernel or Python said."""
    try:
        with ExitStack() as opened, ExitStack() as handed_over:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened.callback(ours.close)
            with theirs:
                control = _above_stdio(handed_over, theirs.fileno())
            owner = os.pidfd_open(os.getpid())
            try:
                owner_above = _above_stdio(handed_over, owner)
            finally:
                os.close(owner)
            # in memory: there may be no folder to write to
            said = opened.enter_context(os.fdopen(os.memfd_create("said"), "w+b", buffering=0))
            process = subprocess.Popen(
                _command(backend, preload, control, owner_above),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                pass_fds=(control, owner_above),
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
            opened.callback(_end, process)
            handed_over.close()
            zygote = _greeted(backend, ours, process, said)
            opened.pop_all()
            said.close()
            return zygote
    except OSError as error:
        raise SandboxUnavailable(f"{backend} can't be started: {error}") from None


def _command(backend: Backend, preload: Sequence[str], control: int, owner: int) -> list[str]:
    where = places.here()
    try:
        filters = _filters(backend)
    except seccomp.Unsupported as error:
        if backend is not Backend.BARE:
            raise SandboxUnavailable(f"{backend} can't be started: {error}") from None
        filters = []
    settings = {
        "control": control,
        "owner": owner,
        "backend": backend.value,
        "filters": filters,
        "preload": list(preload),
        "readable": [*where.folders, *places.DEVICES],
    }
    code = _BOOT.format(package=str(places.PACKAGE), settings=settings, libraries=list(where.libraries))
    inside = [where.python, "-I", "-S", "-B", "-X", "utf8", "-c", code]
    if backend is not Backend.BUBBLEWRAP:
        return inside
    bwrap = bubblewrap.program()
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap isn't installed (the program `bwrap`).")
    return bubblewrap.command(bwrap, where, inside)


def _filters(backend: Backend) -> list[bytes]:
    """For what is alone in a pid namespace, for what isn't, and for programs. Only bubblewrap's evaluations have files
    of their own, and pid namespaces."""
    apart = backend is Backend.BUBBLEWRAP
    return [
        seccomp.program(writes=apart, alone=apart),
        seccomp.program(),
        seccomp.program(writes=apart, alone=apart, executes=True),
    ]


def _greeted(backend: Backend, ours: socket.socket, process: subprocess.Popen[bytes], said: IO[bytes]) -> Zygote:
    """Raises SandboxUnavailable."""
    ours.settimeout(_START_S)
    try:
        data, fds, _, _ = socket.recv_fds(ours, 64, 1)
    except OSError as error:
        data, fds = b"", []
        reason = str(error)
    else:
        reason = os.strerror(errno.EMFILE) if data else "it ended"  # no room for the descriptor that came with it
    ours.settimeout(None)
    if data == orders.READY and fds:
        return Zygote(ours, fds[0], process)
    ours.close()
    _end(process)
    said.seek(0)
    words = said.read(100_000).decode(errors="replace").strip().splitlines()
    raise SandboxUnavailable(f"{backend} can't be started: {words[-1] if words else reason}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _above_stdio(until: ExitStack, fd: int) -> int:
    """A copy of it that is none of 0, 1 and 2, which a process without stdin would give it."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STDIO)
    until.callback(os.close, copy)
    return copy
