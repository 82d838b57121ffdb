"""A program in the other interpreter that gets concurrent requests as JSON lines, each with a time-out.

A program that ends, hangs or breaks the protocol is killed, and its requests fail. The next request starts a new
program, which has none of the previous sessions. Keys are passed over stdin, not in arguments or variables.
"""

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from workers.contract.wire.processes import die_with_parent

GRACE_S = 5.0
"""Seconds after a request's time-out within which the program itself should report the time-out."""
MAX_LINE_BYTES = 8 * 1024 * 1024
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}
_INHERITED_VARIABLES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


class RequestFailed(Exception):
    """Failure of a request to the program, with the reason for people. `kind`: timeout | gone | raised."""

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class PackageProcess:
    """The program, started when needed. Thread-safe. It must be closed at the end, but also dies with this process."""

    def __init__(self, command: Callable[[], Sequence[str]]) -> None:
        """Prepare the program. `command`: called at each start; it may raise PackageMissing."""
        self._command = command
        self._lock = threading.Lock()
        self._running: _RunningProgram | None = None
        self._closed = False
        self._numbers = itertools.count(1)

    def number(self) -> int:
        return next(self._numbers)

    def ask(self, request: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], int]:
        """Send a request, and return the response and the number of the program that sent it, which changes at each
        start. Raises RequestFailed if the program ends, doesn't respond in time or reports an error, and PackageMissing
        if there is no interpreter."""
        running = self._ensure_running()
        try:
            response = running.ask({**request, "id": next(self._numbers), "seconds": seconds}, seconds + GRACE_S)
        except queue.Empty:
            running.end()
            message = f"It didn't respond within {seconds:.3g} s, and its program was stopped."
            raise RequestFailed(message, "timeout") from None
        return response, running.id

    def close(self) -> None:
        with self._lock:
            self._closed, running, self._running = True, self._running, None
        if running is not None:
            running.end()

    def _ensure_running(self) -> "_RunningProgram":
        with self._lock:
            if self._closed:
                raise RequestFailed("It was closed.", "gone")
            if self._running is None or not self._running.lives:
                self._running = _RunningProgram(list(self._command()), next(self._numbers))
            return self._running


class _RunningProgram:
    def __init__(self, command: list[str], number: int) -> None:
        self.id = number
        self.lives = True
        self._lock = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        start_result: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        # The program dies with the thread that starts it, so that thread also reads its responses.
        threading.Thread(target=self._run, args=(command, start_result), name="package", daemon=True).start()
        process = start_result.get()
        if isinstance(process, OSError):
            raise RequestFailed(f"{command[0]} can't be started: {process.strerror}.", "gone")
        self._process = process

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Send a request, and return its response. Raises RequestFailed if the program has ended or reports an error,
        and queue.Empty if it doesn't respond within `seconds`."""
        response: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        line = json.dumps(request).encode() + b"\n"
        with self._lock:
            if not self.lives:
                raise RequestFailed(_ENDED, "gone")
            self._waiting[request["id"]] = response
        try:
            assert self._process.stdin is not None  # noqa: S101  # a pipe was asked for
            with self._lock:
                self._process.stdin.write(line)
                self._process.stdin.flush()
            result = response.get(timeout=seconds)
        except OSError:
            raise RequestFailed(_ENDED, "gone") from None
        finally:
            with self._lock:
                self._waiting.pop(request["id"], None)
        if "ok" in result:
            payload = result["ok"]
            return payload if isinstance(payload, dict) else {}
        raise RequestFailed(str(result.get("error", _ENDED)), str(result.get("kind", "raised")))

    def end(self) -> None:
        self.lives = False
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _run(self, command: list[str], start_result: queue.SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=_ENVIRONMENT | {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ},
                cwd="/",
                start_new_session=True,
                preexec_fn=partial(die_with_parent, os.getpid(), signal.SIGKILL),
            )
        except OSError as error:
            start_result.put(error)
            return
        start_result.put(process)
        assert process.stdout is not None  # noqa: S101  # a pipe was asked for
        while (line := process.stdout.readline(MAX_LINE_BYTES)) and self._deliver(line):
            pass
        process.kill()
        process.wait()
        with self._lock:
            self.lives = False
            waiting, self._waiting = list(self._waiting.values()), {}
        for request in waiting:
            request.put({"error": _ENDED, "kind": "gone"})
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _deliver(self, line: bytes) -> bool:
        """Deliver a response to its waiting request; return False if the program broke the protocol."""
        try:
            response = json.loads(line)
            number = response["id"]
        except (ValueError, LookupError, TypeError):
            return False
        with self._lock:
            waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.put(response)
        return True


_ENDED = "Its program ended."
