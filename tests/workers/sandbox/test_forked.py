"""What a process that the caller forked may do to the caller's sandbox: nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from tests.waiting import wait_until
from tests.workers.sandbox.conftest import LIMITS, alive, descriptors, forks_of, zygote
from tests.workers.sandbox.test_pool import ANSWER
from workers.sandbox import zygote_process
from workers.sandbox.isolation import lockdown
from workers.sandbox.isolation.lockdown import ResourceLimits
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome
from workers.sandbox.outcomes import TestJob as Trial
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes
ENDLESS = Job("while True: pass")
PRINTS = Job("print('x' * 100_000)")
TESTED = Trial("def f(): return 1", ("assert f() == 1", "assert f() == 2"))


def leaves(sandbox: Sandbox) -> None:
    with sandbox:
        pass


def runs_with_all_places_taken(sandbox: Sandbox) -> None:
    """The parent's evaluations have them; this one prints too much, and is killed by its number."""
    assert [outcome.kind for outcome in sandbox.run([PRINTS, PRINTS, PRINTS], LIMITS)] == [Kind.OUTPUT] * 3
    assert sandbox.run([ANSWER], LIMITS)[0].value == 42
    assert sandbox.test([TESTED], LIMITS)[0].passed == 1
    sandbox.close()
    assert sandbox.run([ANSWER], LIMITS)[0].message.endswith("The sandbox was closed.")


@pytest.mark.parametrize("act", [Sandbox.close, leaves, runs_with_all_places_taken])
def test_a_fork_that_uses_the_sandbox_leaves_the_parents_alone(
    one_of_each: Sandbox, act: Callable[[Sandbox], None]
) -> None:
    with Sandbox(one_of_each.backend, parallel=1) as sandbox:
        pid = zygote(sandbox)
        with in_background(sandbox, ENDLESS, Limits(seconds=60)) as outcomes:
            wait_until(lambda: forks_of(pid) != [])
            assert in_fork(partial(act, sandbox)) == 0
            assert outcomes == []
            assert zygote(sandbox) == pid
            [fork] = forks_of(pid)
            os.kill(fork, signal.SIGKILL)
        assert [(one.kind, one.message) for one in outcomes] == [(Kind.KILLED, "It was killed by SIGKILL.")]
        assert sandbox.run([ANSWER], LIMITS)[0].value == 42
        assert zygote(sandbox) == pid


def test_a_forks_own_zygote_goes_with_it(one_of_each: Sandbox) -> None:
    reading, writing = os.pipe()

    def run() -> None:
        one_of_each.run([ANSWER], LIMITS)
        os.write(writing, b"%d" % zygote(one_of_each))

    assert in_fork(run) == 0
    pid = int(os.read(reading, 16))
    os.close(reading)
    os.close(writing)
    wait_until(lambda: not alive(pid))
    assert pid != zygote(one_of_each)


@pytest.mark.parametrize("fork", [os.fork, ctypes.PyDLL(None).fork], ids=["by Python", "unseen by Python"])
def test_no_evaluation_waits_for_a_process_that_was_forked_as_it_began(
    one_of_each: Sandbox, monkeypatch: pytest.MonkeyPatch, fork: Callable[[], int]
) -> None:
    """It has every end of the evaluation's pipes, and lives on."""
    children: list[int] = []
    send = zygote_process.ZygoteProcess.send

    def forking(self: zygote_process.ZygoteProcess, *arguments: object) -> None:
        child = fork()
        if child == 0:
            signal.pause()
        children.append(child)
        send(self, *arguments)  # type: ignore[arg-type]

    with Sandbox(one_of_each.backend) as sandbox, monkeypatch.context() as patched:
        before = descriptors()
        patched.setattr(zygote_process.ZygoteProcess, "send", forking)
        try:
            printed = Job("print('x' * 50_000)\ndef f(): return 42", "f")
            [outcome] = sandbox.run([printed], LIMITS)
            [tested] = sandbox.test([TESTED], LIMITS)
            [endless] = sandbox.run([ENDLESS], Limits(seconds=0.2))
            assert all(map(alive, children))
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        assert (outcome.value, len(outcome.stdout)) == (42, 50_001)
        assert [one.passed for one in tested.results] == [True, False]
        assert endless.kind is Kind.TIMEOUT
        patched.undo()
        assert descriptors() == before


def test_a_zygote_that_dies_while_a_fork_holds_the_pipes_is_not_waited_for(
    one_of_each: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.sandbox.evaluation._BACKSTOP_S", 0.2)
    children: list[int] = []
    send = zygote_process.ZygoteProcess.send

    def forking(self: zygote_process.ZygoteProcess, *arguments: object) -> None:
        children.append(ctypes.PyDLL(None).fork())
        if children[-1] == 0:
            signal.pause()
        send(self, *arguments)  # type: ignore[arg-type]
        os.kill(self.pid, signal.SIGKILL)

    with Sandbox(one_of_each.backend) as sandbox:
        try:
            with monkeypatch.context() as patched:
                patched.setattr(zygote_process.ZygoteProcess, "send", forking)
                [outcome] = sandbox.run([ENDLESS], Limits(seconds=0.5))
        finally:
            for child in children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        assert (outcome.kind, outcome.message) == (
            Kind.KILLED,
            "The sandbox's own process ended; it was restarted.",
        )
        assert sandbox.run([ANSWER], LIMITS)[0].value == 42


def test_a_fork_whose_zygote_ended_before_it_was_locked_in_ends_too() -> None:
    """Where no pid namespace does that."""
    said, saying = os.pipe()
    ended, ending = os.pipe()
    middle = os.fork()
    if middle == 0:
        try:
            lockdown.limit_zygote()
            if os.fork() == 0:
                os.close(ending)
                os.read(ended, 1)
                while os.getppid() == lockdown._zygote_pid:
                    pass
                lockdown.lock(
                    ResourceLimits(60, 1 << 40, 1 << 30), tmpfs_bytes=0, dies_with_parent=True, filter_address=0
                )
                os.write(saying, b"lives on")
        finally:
            os._exit(0)
    for fd in (saying, ended, ending):
        os.close(fd)
    os.waitpid(middle, 0)
    assert os.read(said, 100) == b""
    os.close(said)


@contextmanager
def in_background(sandbox: Sandbox, job: Job, limits: Limits) -> Iterator[list[Outcome]]:
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.extend(sandbox.run([job], limits)))
    thread.start()
    try:
        yield outcomes
    finally:
        thread.join()


def in_fork(act: Callable[[], None]) -> int:
    """Its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
