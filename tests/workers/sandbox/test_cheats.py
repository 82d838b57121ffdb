"""Programs that would like to pass without being right: none does, and the next evaluation works."""

from __future__ import annotations

import pytest

from tests.workers.sandbox.cheats import CHEATS, LOOKING, RIGHT, SLOW, TESTS
from tests.workers.sandbox.test_verdict import RIGHTLY, SOLUTION, WRONG, WRONGLY
from workers.sandbox.outcomes import Backend, Job, Kind, Limits
from workers.sandbox.outcomes import TestJob as Trial  # under their own names pytest takes them for tests
from workers.sandbox.pool import Sandbox

ALL = CHEATS | LOOKING
LIMITS = Limits(seconds=20)
"""Nothing of ALL is to be ended by the clock."""

pytestmark = pytest.mark.processes


@pytest.fixture
def sandbox(any_sandbox: Sandbox) -> Sandbox:
    return any_sandbox


@pytest.mark.parametrize("name", ALL)
def test_no_cheat_passes(name: str, sandbox: Sandbox, opened: dict[Backend, Sandbox]) -> None:
    if name in LOOKING and sandbox.backend is Backend.BARE:
        held = [each for backend, each in opened.items() if backend is not Backend.BARE]
        if not held:
            pytest.skip("a bare process sees the files of this one's user")
        sandbox = held[0]
    cheated, right = sandbox.test([Trial(ALL[name], TESTS), Trial(RIGHT, TESTS)], LIMITS)
    assert [result.passed for result in cheated.results] == [False] * 3
    assert all(result.message and not result.needs for result in cheated.results)
    assert cheated.candidate.kind in (Kind.OK, Kind.ERROR, Kind.KILLED, Kind.MEMORY)
    assert right.passed == 3
    assert right.candidate.kind is Kind.OK


def test_what_never_ends_never_passes(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    for name in SLOW:
        with subtests.test(name=name):
            trials = [Trial(SLOW[name], TESTS), Trial(RIGHT, TESTS)]
            slow, right = sandbox.test(trials, Limits(seconds=1, memory_mb=128))
            assert [result.passed for result in slow.results] == [False] * 3
            assert all(result.message for result in slow.results)
            assert slow.candidate.kind in (Kind.TIMEOUT, Kind.MEMORY, Kind.ERROR, Kind.KILLED, Kind.OK)
            assert right.passed == 3


def test_what_was_known_before_a_loop_stays(sandbox: Sandbox) -> None:
    source = "def area(r):\n    while r == 2:\n        pass\n    return 3 * r * r\n"
    (found,) = sandbox.test([Trial(source, TESTS)], Limits(seconds=2))
    assert [result.passed for result in found.results] == [True, False, False]
    assert found.candidate.kind is Kind.TIMEOUT


def test_a_loop_in_a_test_ends_with_the_evaluation(sandbox: Sandbox) -> None:
    tests = ("assert area(1) == 3", "while area(1): pass\nassert area(1)", "assert area(2) == 12")
    (found,) = sandbox.test([Trial(RIGHT, tests)], Limits(seconds=2))
    assert [result.passed for result in found.results] == [True, False, False]
    assert all(result.message for result in found.results[1:])


def test_right_solutions_pass(sandbox: Sandbox) -> None:
    found = sandbox.test([Trial(SOLUTION, (test,)) for test in RIGHTLY], LIMITS)
    failed = {
        test: outcome.results[0] for test, outcome in zip(RIGHTLY, found, strict=True) if not outcome.results[0].passed
    }
    assert failed == {}


def test_wrong_solutions_fail_in_words(sandbox: Sandbox) -> None:
    found = sandbox.test([Trial(WRONG, tuple(test for test, _ in WRONGLY))], LIMITS)[0]
    assert found.passed == 0
    for result, (_, said) in zip(found.results, WRONGLY, strict=True):
        assert said in result.message


def test_a_test_that_needs_more_never_passes(sandbox: Sandbox) -> None:
    tests = ("s = Stack()\ns.push(1)\nassert s.pop() == 1", "assert area(", "assert area(1) == 3")
    (found,) = sandbox.test([Trial(RIGHT + "class Stack(list):\n    push = list.append\n", tests)])
    assert [result.passed for result in found.results] == [False, False, True]
    assert [bool(result.needs) for result in found.results] == [True, True, False]


def test_a_large_source_is_run(sandbox: Sandbox) -> None:
    (found,) = sandbox.test([Trial(RIGHT + "# " + "x" * 10_000_000 + "\n", TESTS)], LIMITS)
    assert found.passed == 3


def test_a_larger_source_than_memory_allows_is_told(sandbox: Sandbox) -> None:
    source = RIGHT + "x = [" + "{'a': [1]}," * 900_000 + "]\n"
    found, right = sandbox.test([Trial(source, TESTS), Trial(RIGHT, TESTS)], Limits(seconds=20, memory_mb=64))
    assert found.passed == 0
    assert found.candidate.kind in (Kind.MEMORY, Kind.KILLED)
    assert right.passed == 3


def test_jobs_give_plain_values_only(sandbox: Sandbox) -> None:
    bomb = "import os\nclass Bomb:\n    def __reduce__(self):\n        return (os.system, ('touch /tmp/x',))\n"
    found = sandbox.run(
        [
            Job("def f(x):\n    return {'a': (x, {1})}", "f", ([1],)),
            Job(bomb + "def f():\n    return Bomb()", "f"),
            Job("def f():\n    a = []\n    a.append(a)\n    return a", "f"),
            Job("def f():\n    return 'x' * 5_000_000", "f"),
        ],
        LIMITS,
    )
    assert [outcome.kind for outcome in found] == [Kind.OK, Kind.ERROR, Kind.ERROR, Kind.ERROR]
    assert found[0].value == {"a": ([1], {1})}
    assert ["a Bomb" in found[1].message, "nested" in found[2].message, "bytes" in found[3].message] == [True] * 3
