"""Tests that are one call of constants: what is said of them by their form, and that they are judged as all others."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import replace
from types import ModuleType

import pytest

from tests.workers.sandbox.conftest import LIMITS
from workers.sandbox import Kind, Limits, Sandbox, candidate, messages, needs, verifier
from workers.sandbox import TestJob as Trial
from workers.sandbox.ahead import only_call

ONE_CALL = [
    *("assert f()", "assert not f(1)", "assert f(1) == 2", "assert f(-1, [2, (3, 4)], {'a': None}) != 'x', 'why'"),
    *("assert f('test_it') in [1, 2]", "assert f(1.5) is None", "assert f(b'x', 2j) >= -1", "assert f(...) == 1"),
    *("assert Stack(1) == 2", "assert len('a') == 1", "assert touch('a') == 1", "assert sqrt(4) == 2"),
    *("assert Counter('a') == 1", "assert redirect_stdout(1)", "assert eval('1') == 1", "assert isclose(1, 1)"),
    *("assert print(1) is None", "assert open('x', 'w')", "assert __import__('os')", "assert namedtuple('a', 'b')"),
    *("assert f(1) is not 2", "assert f(1) not in ()", "assert f(1) <= 2", "assert math(1) < 2", "assert np(1) > 2"),
    *("assert raises(1)", "assert fail(1)", "assert deepcopy([1]) == [1]", "assert test_f(1) == 1", "assert _(1)"),
]
OTHERS = [
    *("assert f(x) == 1", "assert f(1) == f(2)", "assert f(a=1)", "assert f(*[1])", "assert g.f(1)", "assert f(1) + 1"),
    *("assert 1 == f(1)", "assert 0 < f(1) < 2", "f(1)", "assert f(1)\nassert f(2)", "assert f(f'{1}')", "assert 1"),
    *("assert f(1)(2)", "assert f(1)[0]", "assert f(1), g()", "assert f(1) if 1 else 0", "assert f([x for x in 'a'])"),
    *("assert f({1, 2})", "assert f(1) == {1}"),
    *("assert f(lambda: 1)", "assert f(1 + 1)", "assert f(not 1)", "x = f(1)", "assert f({**{}})", "", "pass"),
]


@pytest.mark.parametrize("test", ONE_CALL)
def test_its_form_says_what_all_of_its_text_does(test: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick = needs.read(test)
    monkeypatch.setattr(needs, "only_call_of", lambda tree: None)
    slow = needs.read(test)
    assert replace(quick, tree=slow.tree, only_call=None) == slow


@pytest.mark.parametrize("test", OTHERS)
def test_what_is_more_than_one_call_of_constants_is_read_whole(test: str) -> None:
    assert only_call(needs.read(test).tree) is None


def test_only_what_is_the_candidates_is_asked_ahead() -> None:
    asked = {test: needs.read(test).only_call for test in ONE_CALL}
    assert [call.args for call in asked.values() if call and call.name == "f"][:4] == [
        [], [1], [1], [-1, [2, (3, 4)], {"a": None}],
    ]  # fmt: skip
    names = {call.name for call in asked.values() if call}
    assert "f" in names
    assert names.isdisjoint(("len", "touch", "Counter", "eval", "print", "open", "__import__", "namedtuple"))


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


def test_any_number_of_long_tests_is_asked(sandbox: Sandbox) -> None:
    """Together they hold more values than one message may."""
    values = ", ".join(["1"] * 1980)
    tests = [f"assert f([{values}]) == {number}" for number in range(1980, 2280)]
    assert judged(sandbox, "f = len", *tests) == [True] + [False] * 299


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


def test_a_test_that_ends_before_its_call_leaves_no_answer_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["assert f(0) == 0", "assert f(1) == 1", "assert f(2) == 1", "assert f(3) == 2"]
    tests = [verifier._Test(text, messages.known(text)) for text in texts]
    names, calls = verifier._Test._names, iter(range(9))

    def short(self: verifier._Test, candidate: verifier._Candidate) -> dict[str, object]:
        if next(calls) == 1:
            raise MemoryError
        return names(self, candidate)

    monkeypatch.setattr(verifier._Test, "_names", short)
    ours, theirs = socket.socketpair()
    told, listening = socket.socketpair()
    answering = threading.Thread(target=answer, args=(theirs,))
    answering.start()
    with ours, told, listening:
        found = verifier._judge(messages.Channel(told.fileno()), messages.Channel(ours.fileno()), tests, 1000)
        buffer = messages.Buffer(1 << 20)
        buffer.feed(found.untold)
        said = iter(buffer.next, None)
        assert [messages.unpack(body)["passed"] for body in said if body] == [True, False, False, False]
        assert found.short
    answering.join()


def answer(to: socket.socket) -> None:
    """As a candidate whose function gives what it gets."""
    module = ModuleType("candidate")
    module.__dict__["f"] = lambda x: x
    with to:
        channel = messages.Channel(to.fileno())
        channel.send({"failed": ""})
        with suppress(messages.Closed):
            while True:
                channel.write(candidate._answered(module, channel.receive_call(), 1000))


LARGE = [0, 1, -1, 2**60 - 1, 2**60, -(2**60), 2**64, 10**300, True, False]


@pytest.mark.parametrize("value", LARGE)
def test_whole_numbers_arrive_as_they_are(sandbox: Sandbox, value: int) -> None:
    told = f"type(f()).__name__ == {type(value).__name__!r}"
    assert judged(sandbox, f"def f(): return {value}", f"assert f() == {value}", f"assert {told}") == [True, True]


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
