"""The caller's side of a zygote: its start on a backend, its control socket and its pidfd.

The module also closes the caller's descriptors in processes that the caller forks, such as a data loader's workers.
"""

import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import threading
import weakref
from array import array
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import IO, Protocol

from workers.sandbox import layout, zygote_protocol
from workers.sandbox.isolation import seccomp
from workers.sandbox.isolation.lockdown import WORK
from workers.sandbox.layout import PackageInterpreter
from workers.sandbox.outcomes import Backend, SandboxUnavailable

_START_TIMEOUT_S = 60.0
"""Seconds within which a zygote must start: many, because preloading large modules takes long on a busy machine."""
_ABOVE_STDIO = 10
_BOOT_CODE = """
import sys, types
settings = {settings!r}
for name, path in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path] if path else []
sys.path += {libraries!r}
from workers.sandbox import zygote
zygote.main(settings)
"""
"""Code that starts the zygote. It skips the packages' __init__, which would only enlarge each fork."""
_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": WORK,
    "LANG": "C.UTF-8",
    # Functions that are linked at their first call would be linked again in every fork.
    "LD_BIND_NOW": "1",
    # The zygote must have a single thread, and these libraries start threads when they are imported.
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


class Gone(OSError):
    """Error for a zygote that has ended or was closed."""


class ClosedInForks(Protocol):
    """An object that is closed in forks of this process."""

    def after_fork(self) -> None:
        """Close the parent's descriptors, and reset locks that its threads may have held. This is called in the child,
        which has one thread."""


_closed_in_forks: weakref.WeakSet[ClosedInForks] = weakref.WeakSet()


def close_in_forks(holder: ClosedInForks) -> None:
    """Register an object to be closed in every fork of this process, as long as the object exists."""
    _closed_in_forks.add(holder)


def _in_child() -> None:
    for holder in list(_closed_in_forks):
        holder.after_fork()


os.register_at_fork(after_in_child=_in_child)


class ZygoteProcess:
    """A running zygote, thread-safe because each order is one packet."""

    def __init__(self, control: socket.socket, pidfd: int, process: subprocess.Popen[bytes]) -> None:
        self._control = control
        self._pidfd = pidfd
        self._process = process
        self._lock = threading.Lock()
        self._closed = False
        close_in_forks(self)

    @property
    def pid(self) -> int:
        """Pid of the zygote in this process's pid namespace. Raises ProcessLookupError once the zygote has ended."""
        with self._lock, open(f"/proc/self/fdinfo/{self._pidfd}", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        if int(fields["Pid"]) <= 0:
            raise ProcessLookupError("The zygote has ended.")
        return int(fields["Pid"])

    def alive(self) -> bool:
        poll = select.poll()
        with self._lock:
            if self._closed:
                return False
            poll.register(self._pidfd, select.POLLIN)
            return not poll.poll(0)

    def send(self, order: bytes, descriptors: Sequence[int] = ()) -> None:
        """Send an order without waiting, because a zygote that leaves hundreds of orders unread is hung. Raises Gone,
        and OSError if this process lacks resources."""
        with self._lock:
            if self._closed:
                raise Gone(errno.EPIPE, "The sandbox's own process was ended.")
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))] if descriptors else []
            try:
                self._control.sendmsg([order], rights, socket.MSG_DONTWAIT)
            except ConnectionError as error:
                raise Gone(error.errno, error.strerror) from None

    def close(self) -> None:
        """Kill the zygote with all its forks, and wait until it has ended. May be called repeatedly."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            with suppress(OSError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._control.close()
            os.close(self._pidfd)
        self._process.wait()

    def after_fork(self) -> None:
        """Close this fork's copies of the descriptors; the parent keeps the zygote."""
        self._lock = threading.Lock()
        if not self._closed:
            self._closed = True
            self._control.close()
            os.close(self._pidfd)
        self._process.returncode = 0  # it isn't a child of this process


def start(backend: Backend, preload: Sequence[str], interpreter: PackageInterpreter | None = None) -> ZygoteProcess:
    """Start a zygote and return it. `interpreter`: the interpreter to use instead of the current one. Raises
    SandboxUnavailable with the error of bubblewrap, the kernel or Python."""
    try:
        with ExitStack() as resources, ExitStack() as inherited_fds:
            own_socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            resources.callback(own_socket.close)
            with child_socket:
                control = _above_stdio(inherited_fds, child_socket.fileno())
            owner = os.pidfd_open(os.getpid())
            try:
                owner_above = _above_stdio(inherited_fds, owner)
            finally:
                os.close(owner)
            # in memory: there may be no writable folder
            stderr = resources.enter_context(os.fdopen(os.memfd_create("stderr"), "w+b", buffering=0))
            process = subprocess.Popen(
                _command(backend, preload, interpreter, control, owner_above),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                pass_fds=(control, owner_above),
                env=_ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
            resources.callback(_end, process)
            inherited_fds.close()
            zygote = _wait_for_greeting(backend, own_socket, process, stderr)
            resources.pop_all()
            stderr.close()
            return zygote
    except OSError as error:
        raise SandboxUnavailable(f"{backend} can't be started: {error}") from None


def _command(
    backend: Backend, preload: Sequence[str], interpreter: PackageInterpreter | None, control: int, owner: int
) -> list[str]:
    where = layout.of(interpreter) if interpreter else layout.current()
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
        "readable": [*where.folders, *layout.DEVICES],
    }
    code = _BOOT_CODE.format(packages=_packages(interpreter), settings=settings, libraries=list(where.libraries))
    inside_argv = [where.python, "-I", "-S", "-B", "-X", "utf8", "-c", code]
    if backend is not Backend.BUBBLEWRAP:
        return inside_argv
    bwrap = layout.bubblewrap_program()
    if bwrap is None:
        raise SandboxUnavailable("bubblewrap isn't installed (the program `bwrap`).")
    return layout.bubblewrap_command(bwrap, where, inside_argv)


def _packages(interpreter: PackageInterpreter | None) -> list[tuple[str, str]]:
    folders = {"workers": "", "workers.sandbox": str(layout.PACKAGE)}
    if interpreter is not None:
        parents = interpreter.package.split(".")[:-1]
        folders |= {".".join(parents[: count + 1]): "" for count in range(len(parents))}
        folders[interpreter.package] = interpreter.folder
    return list(folders.items())


def _filters(backend: Backend) -> list[bytes]:
    """Return the filters in the order of zygote.Zygote's argument. Only evaluations under bubblewrap have their own
    files and pid namespace."""
    isolated = backend is Backend.BUBBLEWRAP
    return [
        seccomp.program(writes=isolated, alone=isolated),
        seccomp.program(),
        seccomp.program(writes=isolated, alone=isolated, executes=True),
    ]


def _wait_for_greeting(
    backend: Backend, own_socket: socket.socket, process: subprocess.Popen[bytes], stderr: IO[bytes]
) -> ZygoteProcess:
    own_socket.settimeout(_START_TIMEOUT_S)
    try:
        data, fds, _, _ = socket.recv_fds(own_socket, 64, 1)
    except OSError as error:
        data, fds = b"", []
        reason = str(error)
    else:
        reason = os.strerror(errno.EMFILE) if data else "it ended"  # no free descriptor for the one that came with it
    own_socket.settimeout(None)
    if data == zygote_protocol.READY and fds:
        return ZygoteProcess(own_socket, fds[0], process)
    own_socket.close()
    _end(process)
    stderr.seek(0)
    lines = stderr.read(100_000).decode(errors="replace").strip().splitlines()
    raise SandboxUnavailable(f"{backend} can't be started: {lines[-1] if lines else reason}")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _above_stdio(stack: ExitStack, fd: int) -> int:
    """Duplicate a descriptor to a number above 0, 1 and 2, which it could have in a process without stdin. Return the
    duplicate, which the stack closes."""
    copy = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STDIO)
    stack.callback(os.close, copy)
    return copy
