"""Runs in the zygote what every fork runs, so that forks inherit what Python sets up at first use.

The types of syntax trees alone are more than a hundred, and each fork would make them again. It forks nothing, and what
it runs is its own.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable

from workers.sandbox import candidate, messages, verifier
from workers.sandbox.messages import Channel
from workers.sandbox.outcomes import Job, Limits, TestJob

_ROUNDS = 10
"""Python rewrites its bytecode for the types that it meets; after so many runs that has settled."""
_SOURCE = """
import math
from typing import List
def area(side: float, names: List[str] = []) -> float:
    total = sum(number for number in range(3)) or math.pi
    return {"area": side * side}["area"]
"""
_TESTS = ("assert area(2) == 4", "try:\n    assert area(2) == 5, 'wrong'\nexcept ValueError:\n    pass")


def rehearse() -> None:
    """For a process without threads."""
    modules = dict(sys.modules)
    test = TestJob(_SOURCE, _TESTS)
    for _ in range(_ROUNDS):
        _with_channel(candidate.run_job, messages.job_request(Job(_SOURCE, "area", (2.0,)), Limits()))
        _serve(messages.source_request(test, Limits()))
        _with_channel(_judge, messages.tests_request(test, Limits()))
    for name in ("candidate", "job"):
        del sys.modules[name]
    sys.modules["__main__"] = modules["__main__"]


def _serve(source: bytes) -> None:
    """One call, then its peer has gone."""
    ours, theirs = socket.socketpair()
    with theirs:
        ours.send(messages.pack({"nonce": "0" * 32, "name": "area", "args": [2], "kwargs": {}}))
        ours.shutdown(socket.SHUT_WR)
        _with_channel(lambda channel: candidate.serve_candidate(channel, Channel(theirs.fileno())), source)
    ours.close()


def _judge(channel: Channel) -> None:
    """Without the guard, which would stay; each call gets an answer that belongs to none."""
    ours, theirs = socket.socketpair()
    ours.send(messages.pack({"failed": ""}) + messages.pack({"nonce": "", "value": 4}))
    with ours, theirs:
        proxy = verifier.CandidateProxy(Channel(theirs.fileno()))
        for text, packed in channel.receive()["tests"]:
            channel.send(verifier.judged(text, packed, proxy))


def _with_channel(run: Callable[[Channel], None], request: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.send(request)
        run(Channel(theirs.fileno()))
