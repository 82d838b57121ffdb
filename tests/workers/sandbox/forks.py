"""The sandbox's two processes as plain forks that nothing holds: what runs in them, without a backend."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workers.sandbox import candidate, messages, verifier
from workers.sandbox.messages import Channel, Closed, Malformed
from workers.sandbox.outcomes import Job, Limits, TestJob, TestResult

SECONDS = 20
"""No child outlives this."""


@dataclass(frozen=True)
class Judged:
    results: tuple[TestResult, ...]
    candidate: dict[str, Any] | None
    """What its process says of itself."""

    @property
    def passed(self) -> list[bool]:
        return [result.passed for result in self.results]

    @property
    def messages(self) -> str:
        return " | ".join(result.message for result in self.results)


def ran(source: str, call: str | None = None, *args: Any, limits: Limits = Limits()) -> Any:  # noqa: B008  it is frozen
    ours, theirs = socket.socketpair()
    with ours:
        pid = _fork(candidate.run_job, theirs)
        theirs.close()
        ours.sendall(messages.job_request(Job(source, call, args), limits))
        try:
            return Channel(ours.fileno()).receive()
        except Closed:
            return None
        finally:
            _end(pid)


def judged(source: str, *tests: str, limits: Limits = Limits(), seconds: float = SECONDS) -> Judged:  # noqa: B008
    job = TestJob(source, tests)
    one, other = socket.socketpair()
    to_candidate, candidate_end = socket.socketpair()
    to_verifier, verifier_end = socket.socketpair()
    with to_candidate, to_verifier:
        left = _fork(candidate.serve_candidate, candidate_end, one)
        one.close()
        candidate_end.close()
        right = _fork(verifier.verify, verifier_end, other)
        other.close()
        verifier_end.close()
        deadline = threading.Timer(seconds, os.kill, (left, signal.SIGKILL))
        deadline.start()
        try:
            to_candidate.sendall(messages.source_request(job, limits))
            to_verifier.sendall(messages.tests_request(job, limits))
            answers = _all(to_verifier)
            said = _all(to_candidate)
        finally:
            deadline.cancel()
            deadline.join()
            _end(left)
            _end(right)
    return Judged(messages.test_results(answers, len(tests), "It reported no result."), said[0] if said else None)


def _fork(entry: Callable[..., None], *ends: socket.socket) -> int:
    """With these ends, and nothing else that is open."""
    pid = os.fork()
    if pid:
        return pid
    try:
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        warnings.resetwarnings()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(nothing, number)
        sys.stdout = sys.stderr = os.fdopen(1, "w", closefd=False)  # not what pytest captures
        for number, end in enumerate(ends):
            os.dup2(end.fileno(), 100 + number)
        os.closerange(3, 100)
        os.closerange(100 + len(ends), 4096)
        entry(*(Channel(100 + number) for number in range(len(ends))))
    finally:
        os._exit(0)


def _all(end: socket.socket) -> list[Any]:
    channel, found = Channel(end.fileno()), []
    try:
        while "done" not in (answer := channel.receive()):
            found.append(answer)
    except (Closed, Malformed):
        pass
    return found


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
