"""One of everything that forks do, done in the zygote: what runs for the first time writes to pages that every fork
would have to copy for itself, and the first compile() alone makes a hundred types."""

from __future__ import annotations

import _socket
import os
import sys
import warnings
from collections.abc import Callable

from workers.sandbox import candidate, kernel, messages, verifier
from workers.sandbox.messages import Channel
from workers.sandbox.outcomes import Job, Limits, TestJob

_ROUNDS = 12
"""Python rewrites its code for the types it meets; after so many runs that is settled."""
_SOURCE = """
import math
from typing import List
class Shape:
    def __init__(self, side: float):
        self.side = side
def area(side: float, names: List[str] = []) -> float:
    total = 0
    for number in range(3):
        total += math.floor(number) if number % 2 else len([c for c in "ab" if c])
    return {"area": side * side}["area"]
def fails():
    raise ValueError("no")
"""
_TESTS = (
    "assert area(2) == 4",
    "assert area(2) == 5, 'wrong'",
    "assert abs(area(1.5) - 2.25) < 1e-3",
    "try:\n    fails()\nexcept ValueError:\n    pass",
)


def warm() -> None:
    """Leaves nothing behind but warmth. For a process without threads."""
    modules = dict(sys.modules)
    with warnings.catch_warnings():
        for _ in range(_ROUNDS):
            _run(Job("x = 1"))
            _run(Job(_SOURCE, "area", (2.0,)))
            _run(Job("1/0"))
            test = TestJob(_SOURCE, _TESTS)
            source, tests = messages.source_request(test, Limits()), messages.tests_request(test, Limits())
            _both(lambda peer, source=source: _serve(source, peer), lambda peer, tests=tests: _verify(tests, peer))  # type: ignore[misc]
            _both(lambda peer, tests=tests: _verify(tests, peer), lambda peer, source=source: _serve(source, peer))  # type: ignore[misc]
    for name in set(sys.modules) - set(modules):
        if name in ("candidate", "job", "tests"):
            del sys.modules[name]
    sys.modules["__main__"] = modules["__main__"]


def _run(job: Job) -> None:
    _with_channel(messages.job_request(job, Limits()), candidate.run_job)


def _serve(request: bytes, peer: int) -> None:
    _with_channel(request, lambda channel: candidate.serve_candidate(channel, Channel(peer)))


def _verify(request: bytes, peer: int) -> None:
    _with_channel(request, lambda channel: verifier.verify(channel, Channel(os.dup(peer)), guarded=False))


def _with_channel(request: bytes, run: Callable[[Channel], None]) -> None:
    ours, theirs = _socket.socketpair()
    ours.send(request)
    run(Channel(theirs.fileno()))
    ours.close()
    theirs.close()


def _both(here: Callable[[int], None], there: Callable[[int], None]) -> None:
    """One in this process, the other in a fork."""
    one, other = _socket.socketpair()
    pid = kernel.fork()
    if pid == 0:
        try:
            one.close()
            there(other.fileno())
        finally:
            os._exit(0)
    other.close()
    try:
        here(one.fileno())
    finally:
        one.close()
        os.waitpid(pid, 0)
