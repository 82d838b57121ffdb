"""Warm child processes: each works on one message at a time, and is killed when it exceeds a limit."""

import atexit
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from django.conf import settings

from controlplane.platform.confined import messages
from controlplane.platform.confined.limits import POLL_S, Slots, StoppedAtLimit

PROGRAM = ("-m", "controlplane.platform.confined")
INHERITED_VARIABLES = (
    "PATH",
    "PYTHONPATH",
    "HOME",
    "TMPDIR",
    "GRPO_ENVIRONMENTS_PYTHON",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Environment variables that children get (judges and models are asked there, under the same certificates); all others,
some of which are secrets, stay in this process."""
WAITING = 16
"""Maximum number of requests that wait for a child. Each occupies one of the web's threads."""
START_S = 60.0
"""Additional time in seconds for the first message of a child, which imports its modules first: seconds of work, which
a busy machine stretches."""
MEMORY_BYTES = 2**30
"""Default limit of a child's address space, which is larger than the memory in use."""
TOO_LARGE = "has a result that is too large to be shown. Try it with less input."
"""End of the sentence for a result beyond messages.MAX_RESULT_BYTES."""
CANCEL_S = 2.0
"""Grace period in seconds for a task that is no longer wanted, after which its child is killed."""


class ChildPool:
    """Pool of up to `size` children, which are started when they are needed, and kept."""

    def __init__(self, size: int, *, memory_bytes: int = MEMORY_BYTES) -> None:
        self.modules: set[str] = set()
        """Modules that a new child imports before its first message."""
        self._size, self._memory_bytes = size, memory_bytes
        self.forget()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Give up all children without ending them: in a fork of this process, they belong to its parent."""
        self._slots = Slots(self._size, WAITING)
        self._idle: list[_WarmChild] = []
        self._lock = threading.Lock()

    def run(self, message: bytes, what: str, seconds: float, is_wanted: Callable[[], bool]) -> bytes:
        """Return a child's answer to a message. Raises Busy if no child becomes free, and StoppedAtLimit if the child
        exceeds a limit or is no longer needed."""
        with self._slots.hold(what, seconds, is_wanted):
            with self._lock:
                child = self._idle.pop() if self._idle else None
            if child is not None and not child.is_alive():
                child.close()
                child = None
            child = child or _WarmChild(self._memory_bytes, sorted(self.modules))
            try:
                spent, answer = child.answer(message, what, seconds, is_wanted)
            except BaseException:
                child.close()
                raise
            if spent:
                child.close()
            else:
                with self._lock:
                    self._idle.append(child)
            return answer

    def close(self) -> None:
        """End the idle children; the next message starts another."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()


class _WarmChild:
    def __init__(self, memory_bytes: int, modules: list[str]) -> None:
        own_socket, child_socket = socket.socketpair()
        with child_socket:
            self._process = subprocess.Popen(
                [sys.executable, *PROGRAM, str(child_socket.fileno()), str(memory_bytes), *modules],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(child_socket.fileno(),),
                cwd=settings.BASE_DIR,
                env={name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
                | {"LANG": "C.UTF-8"},
                # Not a session of its own: Linux first divides the processor among sessions, and heeds niceness only
                # within each.
                process_group=0,
            )
        self._connection = own_socket
        self._is_new = True

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def answer(self, message: bytes, what: str, seconds: float, is_wanted: Callable[[], bool]) -> tuple[bool, bytes]:
        """Return whether the child ends now, and its answer. Raises StoppedAtLimit if the child exceeds its time or
        memory or is no longer needed; the caller must then close it."""
        deadline = time.monotonic() + seconds + (START_S if self._is_new else 0.0)
        self._is_new = False
        try:
            self._connection.settimeout(seconds + START_S)
            messages.send(self._connection, message)
            was_cancelled = self._wait(what, seconds, deadline, is_wanted)
            until = max(deadline, time.monotonic() + 1.0)
            answer = messages.receive(self._connection, limit=messages.MAX_ANSWER_BYTES, until=until)
        except messages.MessageTooLong:
            raise StoppedAtLimit(f"{what} {TOO_LARGE}") from None
        except TimeoutError:
            raise _too_slow(what, seconds) from None
        except (EOFError, OSError):
            if self._exit_code() == -signal.SIGXCPU:
                raise _too_slow(what, seconds) from None
            raise StoppedAtLimit(
                f"{what} needed more memory or deeper nesting than the server allows, so it was stopped. "
                "Try it with less, or simpler, input."
            ) from None
        # A child that has answered meanwhile would read the cancellation as the beginning of the next message.
        return was_cancelled or answer[:1] == b"E", answer[1:]

    def _exit_code(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=1)
        return None

    def _wait(self, what: str, seconds: float, deadline: float, is_wanted: Callable[[], bool]) -> bool:
        """Wait for the answer, and return whether it was cancelled. Raises StoppedAtLimit if there is none in time."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        cancelled = False
        while not poll.poll(POLL_S * 1000):
            if time.monotonic() > deadline:
                raise StoppedAtLimit(f"{what} was no longer needed.") if cancelled else _too_slow(what, seconds)
            if not cancelled and not is_wanted():
                cancelled, deadline = True, min(deadline, time.monotonic() + CANCEL_S)
                self._connection.send(b"C")
        return cancelled

    def close(self) -> None:
        self._connection.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._process.wait()


def _too_slow(what: str, seconds: float) -> StoppedAtLimit:
    limit = f"{max(1, round(seconds))} second{'s' * (round(seconds) > 1)}"
    return StoppedAtLimit(f"{what} took longer than {limit}, so it was stopped. Try it with less, or simpler, input.")
