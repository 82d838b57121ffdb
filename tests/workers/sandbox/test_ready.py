"""What lies ready for the next call: that it is used, and that nothing is owed to it."""

from __future__ import annotations

import errno
import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from tests.workers.sandbox.conftest import LIMITS, alive, descriptors, forks_of, left_of, zygote
from tests.workers.sandbox.test_forked import in_fork
from tests.workers.sandbox.test_pool import ANSWER, wait_for
from workers.sandbox import Kind, Limits, Sandbox, starting
from workers.sandbox import TestJob as Trial
from workers.sandbox.evaluation import Evaluation
from workers.sandbox.orders import BEGIN, KILL, ORDER

pytestmark = pytest.mark.processes
RIGHT = Trial("def f(x): return 2 * x", ("assert f(2) == 4", "assert f(3) == 6"))
ENDLESS = Trial("while True: pass", ("assert f() == 1",))
OPEN = Trial("def f(x): return x", ("class Kept:\n    held = f(1)\nassert Kept.held == 1",))
"""Its test could leave something behind where it ran."""
_AT_ONCE = 2


@pytest.fixture
def ready(one_of_each: Sandbox) -> Iterator[Sandbox]:
    """Two candidates lie ready, with a verifier each."""
    with Sandbox(one_of_each.backend, parallel=_AT_ONCE) as sandbox:
        assert passed(sandbox, 3) == 3
        wait_for(lambda: len(forks_of(zygote(sandbox))) == 2 * _AT_ONCE)
        yield sandbox


def passed(sandbox: Sandbox, count: int, limits: Limits = LIMITS) -> int:
    """How many of so many completions, all of them right."""
    return sum(outcome.passed == len(RIGHT.tests) for outcome in sandbox.test([RIGHT] * count, limits))


def test_the_next_call_takes_what_lies_ready_and_lays_as_much(ready: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    ordered: list[tuple[int, ...]] = []
    send = starting.Zygote.send

    def noting(self: starting.Zygote, order: bytes, *more: object) -> None:
        what, number, *_, begins = ORDER.unpack(order)
        ordered.append((what, number, begins))
        send(self, order, *more)  # type: ignore[arg-type]

    lying = set(forks_of(zygote(ready)))
    monkeypatch.setattr(starting.Zygote, "send", noting)
    assert passed(ready, 2) == 2
    assert all(begins and begins != number for _, number, begins in ordered), "each had lain ready"
    wait_for(lambda: not lying & set(forks_of(zygote(ready))))  # none is used twice
    assert len(forks_of(zygote(ready))) == 2 * _AT_ONCE


def test_within_a_call_each_lies_ready_before_its_turn(ready: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[bool] = []
    send = starting.Zygote.send

    def noting(self: starting.Zygote, order: bytes, *more: object) -> None:
        what, number, *_, begins = ORDER.unpack(order)
        begun.extend([what == BEGIN or begins != number] if what != KILL else [])
        send(self, order, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(starting.Zygote, "send", noting)
    assert passed(ready, 40) == 40
    assert len(begun) >= 40
    # one of the last may find a place and a verifier that nobody expected to be free
    assert begun.count(False) <= 2


def test_time_counts_from_when_code_is_run(ready: Sandbox) -> None:
    limits = Limits(seconds=2)
    began = time.monotonic()
    assert passed(ready, 2, limits) == 2
    wait_for(lambda: time.monotonic() > began + 2 * limits.seconds)
    [endless, right] = ready.test([ENDLESS, RIGHT], limits)
    assert endless.candidate.kind is Kind.TIMEOUT
    assert limits.seconds * 0.8 < endless.candidate.seconds < 10
    assert right.passed == 2


def test_other_limits_are_held_to(ready: Sandbox) -> None:
    bomb = Trial("held = bytearray(100 << 20)\ndef f(x): return x", ("assert f(1) == 1",))
    assert ready.test([bomb], Limits(seconds=20, memory_mb=256))[0].passed == 1
    assert ready.test([bomb], Limits(seconds=20, memory_mb=32))[0].candidate.kind is Kind.MEMORY
    assert ready.test([bomb], Limits(seconds=20, memory_mb=256))[0].passed == 1
    assert len(ready._ready._lying) <= _AT_ONCE


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_lay_ready_and_was_killed_costs_nothing(ready: Sandbox, number: int) -> None:
    lying = forks_of(zygote(ready))
    for pid in lying:
        with suppress(ProcessLookupError):  # a candidate goes with its verifier
            os.kill(pid, number)
    # to be process 1 of a namespace keeps a candidate from the latter, not its verifier
    wait_for(lambda: sum(map(alive, lying)) <= (0 if number == signal.SIGKILL else _AT_ONCE))
    outcomes = ready.test([RIGHT] * 4, LIMITS)
    assert [(each.passed, each.candidate.trouble) for each in outcomes] == [(2, False)] * 4


def test_a_zygote_killed_with_what_lies_ready_costs_nothing(ready: Sandbox) -> None:
    pid = zygote(ready)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not alive(pid))
    assert passed(ready, 4) == 4


def test_a_test_that_leaves_something_behind_is_judged_where_nothing_else_is(ready: Sandbox) -> None:
    assert [each.passed for each in ready.test([OPEN, RIGHT, OPEN, RIGHT], LIMITS)] == [1, 2, 1, 2]


def test_resting_ends_all_that_lies_ready_and_the_next_call_works(ready: Sandbox) -> None:
    pid, before = zygote(ready), descriptors()
    ready.rest()
    assert left_of(pid) == []
    assert descriptors() == before - 5 * _AT_ONCE
    assert passed(ready, 2) == 2


def test_nothing_lies_ready_after_the_end(ready: Sandbox) -> None:
    lying = forks_of(zygote(ready))
    with Sandbox(ready.backend):
        before = descriptors()
    ready.close()
    wait_for(lambda: not any(map(alive, lying)))
    assert descriptors() < before
    assert not ready._ready._lying


def test_a_fork_of_the_caller_leaves_what_lies_ready_to_its_parent(ready: Sandbox) -> None:
    lying = set(forks_of(zygote(ready)))

    def run() -> None:
        assert passed(ready, 3) == 3
        ready.close()

    assert in_fork(partial(run)) == 0
    assert set(forks_of(zygote(ready))) == lying
    assert passed(ready, 3) == 3


def test_an_order_that_finds_no_descriptors_to_be_had_leaves_the_evaluation_as_it_is(
    ready: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows can't be laid ready: then it is not."""
    pipe, calls = os.pipe, [0]

    def sometimes() -> tuple[int, int]:
        calls[0] += 1
        if calls[0] % 3 == 0:
            raise OSError(24, "Too many open files")
        return pipe()

    monkeypatch.setattr("os.pipe", sometimes)
    assert [each.passed for each in ready.test([RIGHT] * 2, LIMITS)] == [2, 2]
    monkeypatch.undo()
    ready.rest()
    assert passed(ready, 5) == 5
    assert left_of_used(ready) == []


@pytest.mark.parametrize("failing", range(1, 7))
def test_one_that_cannot_be_laid_takes_nobody_with_it(
    one_of_each: Sandbox, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Be it a candidate that follows another on its verifier, or one for the next call."""
    lay, laid = Evaluation.lay_ready, itertools.count(1)

    def sometimes(self: Evaluation, *arguments: object) -> None:
        if next(laid) != failing:
            return lay(self, *arguments)  # type: ignore[arg-type]
        with monkeypatch.context() as patched:
            patched.setattr("os.pipe", refused)
            lay(self, *arguments)  # type: ignore[arg-type]

    with Sandbox(one_of_each.backend, parallel=1) as sandbox:
        assert passed(sandbox, 1) == 1
        monkeypatch.setattr(Evaluation, "lay_ready", sometimes)
        assert passed(sandbox, 6) == 6
        assert left_of_used(sandbox) == []


def refused() -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_one_that_followed_and_was_killed_costs_nobody_anything(
    ready: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, begun = Evaluation.begin, itertools.count(1)

    def sometimes(self: Evaluation, *arguments: object, **options: object) -> None:
        if next(begun) % 4 == 0:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")
        begin(self, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluation, "begin", sometimes)
    outcomes = ready.test([RIGHT] * 24, LIMITS)
    assert [(each.passed, each.candidate.kind) for each in outcomes] == [(2, Kind.OK)] * 24
    monkeypatch.undo()
    has_all_its_places(ready)


def test_a_zygote_killed_again_and_again_in_mid_call_leaves_the_sandbox_whole(ready: Sandbox) -> None:
    slow = Trial("for _ in range(300_000): pass\ndef f(x): return 2 * x", RIGHT.tests)
    for _ in range(6):
        pid = zygote(ready)
        threading.Thread(target=kill, args=(pid, set(forks_of(pid)))).start()
        for outcome in ready.test([slow] * 12, LIMITS):
            assert outcome.passed == 2 or outcome.candidate.trouble, outcome
        wait_for(lambda pid=pid: not alive(pid))  # type: ignore[misc]
    has_all_its_places(ready)


def kill(pid: int, before: set[int]) -> None:
    """As soon as a process is there that wasn't."""
    wait_for(lambda: bool(set(forks_of(pid)) - before))
    os.kill(pid, signal.SIGKILL)


def has_all_its_places(sandbox: Sandbox) -> None:
    assert passed(sandbox, 6) == 6
    assert (sandbox._places._value, sandbox._exits._value) == (_AT_ONCE, _AT_ONCE)
    assert left_of_used(sandbox) == []


@pytest.mark.parametrize("where", ["_lay_following", "_begin"])
def test_an_interrupt_in_the_middle_leaves_nothing(ready: Sandbox, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    held = descriptors() - 5 * _AT_ONCE
    patched = "pool.Sandbox._lay_following" if where == "_lay_following" else "evaluation.Evaluation.begin"
    monkeypatch.setattr(f"workers.sandbox.{patched}", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ready.test([RIGHT] * 3, LIMITS)
    monkeypatch.undo()
    ready.rest()
    assert left_of(zygote(ready)) == []
    assert descriptors() == held
    has_all_its_places(ready)


def test_one_that_is_judged_and_does_not_end_is_ended(one_of_each: Sandbox) -> None:
    lingering = "import sys\nclass Out:\n    def flush(self):\n        while True: pass\nsys.stdout = Out()\n"
    jobs = [Trial(lingering + RIGHT.source, RIGHT.tests), RIGHT, RIGHT]
    with Sandbox(one_of_each.backend, parallel=1) as sandbox:
        outcomes = sandbox.test(jobs, Limits(seconds=60))
    assert [each.passed for each in outcomes] == [2, 2, 2]
    assert outcomes[0].candidate.seconds < 30


def left_of_used(sandbox: Sandbox) -> list[int]:
    sandbox.rest()
    return left_of(zygote(sandbox))


def test_threads_take_each_their_own(ready: Sandbox) -> None:
    got: list[int] = []
    threads = [threading.Thread(target=lambda: got.append(passed(ready, 25))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [25] * 4
    assert left_of_used(ready) == []


def test_a_single_evaluation_is_ended_by_number_though_it_had_lain_ready(
    ready: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    send = starting.Zygote.send

    def noting(self: starting.Zygote, order: bytes, *more: object) -> None:
        what, number, *_ = ORDER.unpack(order)
        killed.extend([number] if what == KILL else [])
        send(self, order, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(starting.Zygote, "send", noting)
    flood = Trial("print('x' * 1_000_000)\ndef f(): return 1", ("assert f() == 1",))
    [outcome] = ready.test([flood], LIMITS)
    assert outcome.candidate.kind is Kind.OUTPUT
    assert len(killed) == 1
    assert ready.run([ANSWER], LIMITS)[0].value == 42
