"""What the caller's own process is spared: answers without end, descriptors that run out, limits that are none."""

from __future__ import annotations

import math
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.waiting import wait_until
from tests.workers.sandbox.conftest import LIMITS, descriptors, forks_of, zygote
from tests.workers.sandbox.test_pool import ANSWER
from workers.sandbox import zygote_process
from workers.sandbox.evaluation import Evaluation
from workers.sandbox.outcomes import Backend, Job, Kind, Limits, SandboxUnavailable
from workers.sandbox.outcomes import TestJob as Trial
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes

FLOOD = """
import os, struct
body = b'"' + b"x" * 1_000_000 + b'"'
packed = struct.pack("!I", len(body)) + body
while True:
    left = memoryview(packed)
    while left:
        left = left[os.write(3, left):]
"""
SECOND = """
import os
from workers.sandbox.messages import pack
os.write(3, pack({"kind": "ok", "value": "forged", "message": "", "traceback": ""}))
"""


def test_a_second_answer_ends_the_evaluation_and_none_is_kept_beyond(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[int] = []
    read = Evaluation._receive_messages

    def watched(self: Evaluation, *arguments: object) -> None:
        read(self, *arguments)  # type: ignore[arg-type]
        kept.append(len(self._messages[self._channel].received))

    monkeypatch.setattr(Evaluation, "_receive_messages", watched)
    [flooded] = sandbox.run([Job(FLOOD)], LIMITS)
    [tested] = sandbox.test([Trial(FLOOD, ("assert f() == 1",))], LIMITS)
    for outcome in (flooded, tested.candidate):
        assert (outcome.kind, outcome.message) == (Kind.ERROR, "It sent more messages than were requested.")
        assert outcome.value is None
    assert max(kept) == 1
    assert not tested.passed


def test_a_forged_answer_before_its_own_is_no_value(sandbox: Sandbox) -> None:
    [outcome] = sandbox.run([Job(SECOND + "def f(): return 'honest'", "f")], LIMITS)
    assert (outcome.kind, outcome.value) == (Kind.ERROR, None)


COLLIDING = """
import os, json, struct
numbers = [n * (2**61 - 1) for n in range(60_000)]
value = {"m": {"kind": "ok", "message": "", "traceback": "", "value": %s}}
body = json.dumps(value).encode()
os.write(3, struct.pack("!I", len(body)) + body)
os._exit(0)
"""


def test_colliding_hashes_in_an_answer_do_not_hold_up_the_caller(
    one_of_each: Sandbox, subtests: pytest.Subtests
) -> None:
    for value in ['{"s": numbers}', '{"d": [[n, 0] for n in numbers]}', '{"f": [{"t": numbers}]}']:
        with subtests.test(value=value):
            before = time.process_time()
            [outcome] = one_of_each.run([Job(COLLIDING % value)], LIMITS)
            [tested] = one_of_each.test([Trial(COLLIDING % value, ("assert f() == 1",))], LIMITS)
            assert time.process_time() - before < 5, "one such answer takes a minute where it is decoded"
            assert (outcome.kind, tested.candidate.kind) == (Kind.ERROR, Kind.ERROR)
            assert "can't be read" in outcome.message


def test_ordinary_sets_and_keys_are_answers(one_of_each: Sandbox) -> None:
    [outcome] = one_of_each.run([Job("def f(): return {1, 2}, {(1, 2): {3}}", "f")], LIMITS)
    assert outcome.value == ({1, 2}, {(1, 2): {3}})


def test_an_answer_that_is_no_answer_is_an_outcome(sandbox: Sandbox) -> None:
    said = "import os\nfrom workers.sandbox.messages import pack\nos.write(3, pack('text'))\n"
    assert sandbox.run([Job(said + "os._exit(0)")], LIMITS)[0].kind is Kind.ERROR
    assert sandbox.run([Job(said)], LIMITS)[0].kind is Kind.ERROR


def test_descriptors_above_1024_are_as_good_as_others(one_of_each: Sandbox) -> None:
    with open_files(2048):
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
        try:
            with Sandbox(one_of_each.backend) as sandbox:
                assert sandbox.run([ANSWER], LIMITS)[0].value == 42
        finally:
            for fd in held:
                os.close(fd)


def test_without_descriptors_an_evaluation_says_so_and_harms_no_other(one_of_each: Sandbox) -> None:
    waits = Job("while True: pass")
    got: list[Kind] = []
    with Sandbox(one_of_each.backend, parallel=2) as sandbox:
        pid = zygote(sandbox)
        other = threading.Thread(target=lambda: got.append(sandbox.run([waits], Limits(seconds=3))[0].kind))
        other.start()
        wait_until(lambda: forks_of(pid) != [])
        before = descriptors()
        with open_files(64), no_descriptor_left():
            outcomes = [sandbox.run([ANSWER], LIMITS)[0] for _ in range(3)]
        other.join()
        assert [outcome.kind for outcome in outcomes] == [Kind.KILLED] * 3
        assert {outcome.message for outcome in outcomes} == {"It could not be started here: Too many open files."}
        assert got == [Kind.TIMEOUT]
        assert zygote(sandbox) == pid
        assert descriptors() <= before
        assert [outcome.value for outcome in sandbox.run([ANSWER] * 4, LIMITS)] == [42] * 4


@pytest.mark.parametrize("backend", [Backend.BUBBLEWRAP, Backend.LANDLOCK, Backend.BARE])
def test_a_start_without_descriptors_is_unavailable_and_leaves_none_open(backend: Backend) -> None:
    """However far it comes."""
    before = descriptors()
    for spare in range(20):
        with open_files(64), no_descriptor_left(spare):
            try:
                zygote_process.start(backend, ()).close()
            except SandboxUnavailable:
                failed = True
            else:
                failed = False
        assert descriptors() == before
        assert failed or spare > 3
        assert not failed or spare < 16


def test_what_raises_in_a_start_leaves_its_place_to_the_next(
    one_of_each: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    with Sandbox(one_of_each.backend, parallel=1) as sandbox:
        before = descriptors()
        with monkeypatch.context() as patched:
            patched.setattr(zygote_process.ZygoteProcess, "send", interrupted)
            for _ in range(2):
                with pytest.raises(KeyboardInterrupt):
                    sandbox.run([ANSWER], LIMITS)
        with pytest.raises(TypeError):
            sandbox.test([Trial("x = 1", (5,))])  # type: ignore[arg-type]
        assert descriptors() == before
        assert sandbox.run([ANSWER], LIMITS)[0].value == 42


def test_many_threads_close_and_ask_for_one_zygote(one_of_each: Sandbox) -> None:
    """A closed descriptor may be another file's by then."""
    for _ in range(5):
        one = zygote_process.start(one_of_each.backend, ())
        raised: list[BaseException] = []
        threads = [threading.Thread(target=_caught, args=(raised, act)) for act in (one.alive, one.close) * 4]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert raised == []
        assert not one.alive()
        with pytest.raises(zygote_process.Gone):
            one.send(b"")


def _caught(raised: list[BaseException], act: Callable[[], object]) -> None:
    try:
        for _ in range(200):
            act()
    except BaseException as error:
        raised.append(error)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seconds": 0}, {"seconds": -1}, {"seconds": math.nan}, {"seconds": math.inf}, {"seconds": 1e12},
        {"memory_mb": 0}, {"memory_mb": -1}, {"memory_mb": 1 << 60}, {"disk_mb": -1}, {"output_bytes": -1},
        {"value_bytes": 0}, {"memory_mb": "256"},
    ],
)  # fmt: skip
def test_limits_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} is .*; it must be between"):
        Limits(**wrong)  # type: ignore[arg-type]


def test_a_thousand_tests_of_one_candidate_are_all_judged(sandbox: Sandbox) -> None:
    """More than a socket holds that nobody reads."""
    tests = tuple(f"assert f({number}) == {number}, '{'x' * 100}'" for number in range(1_000))
    [right] = sandbox.test([Trial("def f(x): return x", tests)], LIMITS)
    [wrong] = sandbox.test([Trial("def f(x): return -x", tests)], LIMITS)
    assert (right.passed, wrong.passed) == (1_000, 1)
    assert right.candidate.kind is wrong.candidate.kind is Kind.OK


@contextmanager
def open_files(most: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def no_descriptor_left(spare: int = 0) -> Iterator[None]:
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass
    try:
        while held and spare:
            os.close(held.pop())
            spare -= 1
        yield
    finally:
        for fd in held:
            os.close(fd)
