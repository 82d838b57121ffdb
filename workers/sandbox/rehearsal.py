"""A rehearsal in the zygote of the code that every fork runs, so that forks inherit the state that Python initialises
on first use.

Otherwise each fork would, for example, create more than a hundred syntax tree types. The rehearsal forks nothing and
runs only its own code.
"""

import socket
import sys
from collections.abc import Callable

from workers.sandbox import candidate, messages, verifier
from workers.sandbox.messages import Channel
from workers.sandbox.outcomes import Job, Limits, TestJob

_ROUNDS = 10
_SOURCE = """
import math
from typing import List
def area(side: float, names: List[str] = []) -> float:
    total = sum(number for number in range(3)) or math.pi
    return {"area": side * side}["area"]
"""
_TESTS = ("assert area(2) == 4", "try:\n    assert area(2) == 5, 'wrong'\nexcept ValueError:\n    pass")


def rehearse() -> None:
    """Run all entry points, in a process without threads."""
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
    local, remote = socket.socketpair()
    with remote:
        local.send(messages.pack({"nonce": "0" * 32, "name": "area", "args": [2], "kwargs": {}}))
        local.shutdown(socket.SHUT_WR)
        _with_channel(lambda channel: candidate.serve_candidate(channel, Channel(remote.fileno())), source)
    local.close()


def _judge(channel: Channel) -> None:
    """Judge tests without the guard, which could not be removed; each call gets a reply with a wrong nonce."""
    local, remote = socket.socketpair()
    local.send(messages.pack({"failed": ""}) + messages.pack({"nonce": "", "value": 4}))
    with local, remote:
        proxy = verifier.CandidateProxy(Channel(remote.fileno()))
        for text, packed in channel.receive()["tests"]:
            channel.send(verifier.judge(text, packed, proxy))


def _with_channel(run: Callable[[Channel], None], request: bytes) -> None:
    local, remote = socket.socketpair()
    with local, remote:
        local.send(request)
        run(Channel(remote.fileno()))
