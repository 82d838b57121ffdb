"""Calls between a test and a candidate: their order, their arguments and values, and answers that belong to none."""

from __future__ import annotations

import pytest

from tests.workers.sandbox.conftest import LIMITS
from workers.sandbox.outcomes import Kind, Limits
from workers.sandbox.outcomes import TestJob as Trial
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes


def judged(sandbox: Sandbox, source: str, *tests: str, limits: Limits = LIMITS) -> list[bool]:
    [outcome] = sandbox.test([Trial(source, tests)], limits)
    return [result.passed for result in outcome.results]


def test_calls_come_in_the_order_of_the_tests(sandbox: Sandbox) -> None:
    source = "said = []\ndef f(x):\n    said.append(x)\n    return len(said)\ndef g():\n    return said"
    tests = ["assert f('a') == 1", "assert f('b') == 2", "x = f('c')\nassert x == 3", "assert f('d') == 4"]
    assert judged(sandbox, source, *tests, "assert g() == ['a', 'b', 'c', 'd']") == [True] * 5
    many = [f"assert f({number}) == {number + 1}" for number in range(400)]
    assert judged(sandbox, source, *many) == [True] * 400


def test_one_that_never_answers_costs_what_comes_after_it_alone(sandbox: Sandbox) -> None:
    source = "def f(x):\n    while x == 2:\n        pass\n    return x"
    tests = [f"assert f({number}) == {number}" for number in range(5)]
    assert judged(sandbox, source, *tests, limits=Limits(seconds=2)) == [True, True, False, False, False]


def test_one_that_raises_leaves_in_mid_run_or_is_missing_fails_alone_or_with_what_follows(sandbox: Sandbox) -> None:
    tests = ("assert f(1) == 1", "assert f(2) == 2", "assert g(3) == 3", "assert f(4) == 4")
    raising = "def f(x):\n    if x == 2:\n        raise ValueError\n    return x"
    assert judged(sandbox, raising, *tests) == [True, False, False, True]
    leaving = "import os\ndef f(x):\n    return os._exit(0) if x == 2 else x\ndef g(x):\n    return x"
    assert judged(sandbox, leaving, *tests) == [True, False, False, False]
    assert judged(sandbox, "def f(x): return", "assert f(1) is None", "assert not f(2)", "assert f(3)") == [
        True, True, False,
    ]  # fmt: skip


def test_arguments_arrive_as_they_stand_and_apart(sandbox: Sandbox) -> None:
    source = """
def f(*x):
    return [repr(x), [type(one).__name__ for one in x]]
def g(a, b):
    a.append(1)
    return b
"""
    args = "1, 1.5, True, None, 'ü\\ud800', b'x', [1, (2,)], {'a': {1}}, {3, 4}, -0.0, 2j, 10**2"
    values = (1, 1.5, True, None, "ü\ud800", b"x", [1, (2,)], {"a": {1}}, {3, 4}, -0.0, 2j)
    said = [repr(values), [type(one).__name__ for one in values]]
    test = f"assert f({args.removesuffix(', 10**2')}) == {said!r}"
    assert judged(sandbox, source, test, "assert g([], []) == []") == [True, True]


def test_a_set_is_made_in_the_order_of_the_text(sandbox: Sandbox) -> None:
    assert judged(sandbox, "f = list", "assert f({8, 0}) == [8, 0]", "assert f([1]) == [1]") == [True, True]


def test_what_was_won_is_kept_though_a_later_value_kills_the_verifier(sandbox: Sandbox) -> None:
    """A set of numbers with the same hash takes hours to make."""
    source = """
import json, os, struct, sys
def f(x):
    if x < 3:
        return x
    nonce = sys._getframe(1).f_locals["call"]["nonce"]
    body = json.dumps({"m": {"nonce": nonce, "value": {"s": [i * (2**61 - 1) for i in range(40_000)]}}}).encode()
    body = struct.pack("!I", len(body)) + body
    while body:
        body = body[os.write(4, body) :]
    while True:
        pass
"""
    tests = [f"assert f({number}) == {number}" for number in range(5)]
    assert judged(sandbox, source, *tests, limits=Limits(seconds=2)) == [True, True, True, False, False]


LARGE = [0, 1, -1, 2**60 - 1, 2**60, -(2**60), 2**64, 10**300, True, False]


def test_whole_numbers_arrive_as_they_are(sandbox: Sandbox, subtests: pytest.Subtests) -> None:
    for value in LARGE:
        with subtests.test(value=value):
            told = f"type(f()).__name__ == {type(value).__name__!r}"
            assert judged(sandbox, f"def f(): return {value}", f"assert f() == {value}", f"assert {told}") == [
                True,
                True,
            ]


def test_an_int_of_its_own_kind_is_an_int(sandbox: Sandbox) -> None:
    source = "class Own(int):\n    def __eq__(self, other): return True\n    __hash__ = None\ndef f(): return Own(1)"
    assert judged(sandbox, source, "assert f() == 1", "assert f() == 2") == [True, False]


def test_answers_beside_what_was_asked_are_a_fail(sandbox: Sandbox) -> None:
    """It answers each call twice: the second answer is none to the next one."""
    source = """
from workers.sandbox.messages import Channel
write = Channel.write
def twice(self, packed):
    write(self, packed)
    if b'"nonce"' in packed:
        write(self, packed)
Channel.write = twice
def f(x):
    return 1
"""
    [outcome] = sandbox.test([Trial(source, ("assert f(1) == 1", "assert f(2) == 1", "assert f(3) == 1"))], LIMITS)
    assert [result.passed for result in outcome.results] == [True, False, False]
    assert "belongs to no call" in outcome.results[1].message
    assert outcome.candidate.kind is Kind.OK


def test_a_candidate_that_is_judged_and_does_not_end_is_ended(sandbox: Sandbox) -> None:
    lingering = "import sys\nclass Out:\n    def flush(self):\n        while True: pass\nsys.stdout = Out()\n"
    source = lingering + "def f(x): return 2 * x"
    [outcome] = sandbox.test([Trial(source, ("assert f(2) == 4", "assert f(3) == 6"))], Limits(seconds=60))
    assert outcome.passed == 2
    assert outcome.candidate.seconds < 30


def test_nothing_is_used_twice(sandbox: Sandbox) -> None:
    """Neither a candidate's process nor a verifier's keeps anything of an evaluation before it."""
    source = "import sys\nseen = sys.__dict__.setdefault('seen', [])\nseen.append(1)\ndef f(): return len(seen)"
    spoiling = "import math\nassert f() == 1 and math.pi > 3\nmath.pi = 0"
    outcomes = sandbox.test([Trial(source, (spoiling,))] * 8, LIMITS)
    assert [outcome.passed for outcome in outcomes] == [1] * 8
