"""Rewards of code, in the real sandbox: what parses, runs, passes tests and is tidy."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.rewards.sandboxes import BACKENDS, best_tools, tools_on
from tests.workers.sandbox.conftest import forks_of, left_of, zygote
from workers.packages import reasoning
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Cost, Scores
from workers.rewards.sandboxed import PRELOADED_MODULES
from workers.rewards.scoring import score
from workers.rewards.tools import Tools
from workers.sandbox import outcomes
from workers.sandbox.outcomes import Kind, Outcome, SandboxUnavailable
from workers.sandbox.pool import Sandbox

pytestmark = pytest.mark.processes

FENCED = "Here:\n```python\n{}\n```\ndone"
ADD = FENCED.format("def add(a, b):\n    return a + b")
TESTS = {"test_cases": ["assert add(1, 2) == 3", "assert add(2, 2) == 4", "assert add(0.5, 1) == 1.5"]}
SANDBOXED = [reward.key for reward in LIBRARY.values() if reward.cost is Cost.SANDBOX]


@pytest.fixture(scope="module", params=BACKENDS)
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    with tools_on(request.param) as tools:
        yield tools


def given(key: str, completion: str, tools: Tools, row: Any = None, **params: Any) -> Scores:
    assert LIBRARY[key].check(params) == []
    return score(LIBRARY[key], [completion], [row or {}], params, tools)


def one(key: str, completion: str, tools: Tools, row: Any = None, **params: Any) -> float | None:
    scores = given(key, completion, tools, row, **params)
    assert scores.failures == []
    return scores.values[0]


@pytest.mark.parametrize("key", ["python_syntax", "python_executes", "tests_passed", "same_output"])
def test_a_sandbox_that_fails_itself_says_nothing_of_the_code(
    key: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Outcome(Kind.KILLED, message="It went away.", trouble=True)
    monkeypatch.setattr(Sandbox, "run", lambda self, jobs, limits: [gone] * len(jobs))
    untested = outcomes.TestOutcome((outcomes.TestResult(passed=False),) * 3, gone)
    monkeypatch.setattr(Sandbox, "test", lambda self, jobs, limits: [untested] * len(jobs))
    scores = given(key, ADD, tools, TESTS | {"answer": "print(1)"})
    assert scores.values == [None]
    assert [(each.index, each.kind, each.message) for each in scores.failures] == [(0, "killed", "It went away.")]


def test_a_zygote_that_is_killed_leaves_the_row_without_a_score_and_the_next_has_one(tools: Tools) -> None:
    pid = zygote(tools.sandbox(*PRELOADED_MODULES))
    assert left_of(pid) == []
    killer = threading.Thread(target=lambda: (wait_until(lambda: forks_of(pid) != []), os.kill(pid, signal.SIGKILL)))
    killer.start()
    scores = given("python_executes", FENCED.format("while True: pass"), tools, seconds=60.0)
    killer.join()
    assert scores.values == [None]
    assert [(each.index, each.kind) for each in scores.failures] == [(0, "killed")]
    assert one("python_executes", FENCED.format("while True: pass"), tools, seconds=0.3) == 0.0


EXAMPLES = [(key, number, each) for key in SANDBOXED for number, each in enumerate(LIBRARY[key].examples)]


def test_every_example_scores_as_its_page_says(tools: Tools, subtests: pytest.Subtests) -> None:
    for key, _, example in EXAMPLES:
        with subtests.test(key=key):
            completion = Completion(example.completion, example.turns, example.tokens)
            scores = score(LIBRARY[key], [completion], [example.row], example.params, tools)
            assert scores.values == [pytest.approx(example.score)]
            low, high = LIBRARY[key].expected(example.params)
            assert low <= (example.score or 0.0) <= (float("inf") if high is None else high)


@pytest.mark.parametrize(
    ("completion", "params", "expected"),
    [
        (FENCED.format("x = 1"), {}, 1.0),
        (FENCED.format("x ="), {}, 0.0),
        (FENCED.format("x ="), {"wrong_score": -1.0}, -1.0),
        (FENCED.format("# only a comment"), {}, 0.0),
        ("```\nx = 1\n```", {}, 1.0),
        ("```x = 1```", {}, 1.0),
        ("```py\nx =\n``` then ```py\nx = 1\n```", {}, 1.0),
        ("```py\nx = 1\n``` then ```py\nx =", {}, 1.0),
        ("x = 1", {}, 0.0),
        ("x = 1", {"needs_block": False}, 1.0),
        (FENCED.format("'\\d'"), {}, 1.0),
        (FENCED.format("x = '\udcff'"), {}, 0.0),
        (FENCED.format("x = 1\0"), {}, 0.0),
        ("```\nx=" + "not " * 10_000 + "1\n```", {}, 0.0),
        ("```\n" + "".join(" " * i + "if a:\n" for i in range(250)) + " " * 250 + "pass\n```", {}, 0.0),
        ("```\n" + "#" * 50_001 + "\nx = 1\n```", {}, 0.0),
    ],
)
def test_code_that_parses_scores(completion: str, params: dict[str, Any], expected: float, tools: Tools) -> None:
    assert one("python_syntax", completion, tools, **params) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("print('hello')", 1.0),
        ("raise ValueError('no')", 0.0),
        ("import os\nos._exit(0)", 0.0),
        ("import sys\nsys.exit(0)", 0.0),
        ("while True: pass", 0.0),
        ("x = 'a' * 10**10", 0.0),
        ("while True: print('a' * 1000)", 0.0),
        ("import socket\nsocket.create_connection(('127.0.0.1', 80))", 0.0),
        ("import os\nos.kill(os.getppid(), 9)\nos.abort()", 0.0),
    ],
)
def test_code_that_ends_well_scores_and_the_next_is_scored_as_well(code: str, expected: float, tools: Tools) -> None:
    assert one("python_executes", FENCED.format(code), tools, seconds=1.0) == expected
    assert one("python_executes", FENCED.format("x = 1"), tools) == 1.0


def test_code_runs_after_its_set_up(tools: Tools) -> None:
    code = FENCED.format("assert sqrt(4) == 2")
    assert one("python_executes", code, tools) == 0.0
    assert one("python_executes", code, tools, setup="from math import sqrt") == 1.0
    row = {"test_cases": ["assert root(9) == 3"]}
    assert one("tests_passed", FENCED.format("root = sqrt"), tools, row, setup="from math import sqrt") == 1.0


@pytest.mark.parametrize(
    ("code", "expected", "says"),
    [
        ("def add(a, b):\n    return a + b", 1.0, "3 of 3 tests passed."),
        ("def add(a, b):\n    return 3", 1 / 3, "1 of 3 tests passed: assert add(2, 2) == 4"),
        ("def sub(a, b):\n    return a - b", 0.0, "0 of 3 tests passed"),
        ("def add(a, b)", 0.0, "0 of 3 tests passed"),
        ("import sys\nsys.exit(0)", 0.0, "0 of 3 tests passed"),
        ("class Any:\n    __eq__ = lambda *_: True\ndef add(a, b):\n    return Any()", 0.0, "0 of 3 tests passed"),
        ("import builtins\nbuiltins.AssertionError = None\ndef add(a, b):\n    return 3", 1 / 3, "1 of 3 tests passed"),
    ],
)
def test_the_share_of_tests_that_pass_is_the_score(code: str, expected: float, says: str, tools: Tools) -> None:
    scores = given("tests_passed", FENCED.format(code), tools, TESTS)
    assert scores.values == [pytest.approx(expected)]
    assert scores.notes[0].startswith(says)
    assert one("tests_passed", FENCED.format(code), tools, TESTS, all_or_nothing=True) == float(expected == 1.0)


def test_a_test_may_define_a_check_and_call_it_with_the_function(tools: Tools) -> None:
    row = {"test_cases": ["def check(candidate):\n    assert candidate(1, 2) == 3\n\n\ncheck(add)\n"]}
    assert one("tests_passed", ADD, tools, row) == 1.0
    assert one("tests_passed", FENCED.format("def add(a, b):\n    return 4"), tools, row) == 0.0


def test_a_test_that_needs_more_than_plain_values_never_counts_as_passed(tools: Tools) -> None:
    row = {"test_cases": ["assert add(1, 2) == 3", "assert add.__name__ == 'add'"]}
    scores = given("tests_passed", ADD, tools, row)
    assert scores.values == [0.5]
    assert scores.failures == []


def test_a_row_without_tests_is_not_applicable(tools: Tools, subtests: pytest.Subtests) -> None:
    for cases in [None, [], "", [" "], 7]:
        with subtests.test(cases=cases):
            assert one("tests_passed", ADD, tools, {"test_cases": cases}) is None


def test_a_completion_without_code_passes_nothing(tools: Tools) -> None:
    scores = given("tests_passed", "def add(a, b): return a + b", tools, TESTS)
    assert (scores.values, scores.notes) == ([0.0], ["It has no code."])
    assert one("tests_passed", "def add(a, b): return a + b", tools, TESTS, needs_block=False) == 1.0


def test_a_group_is_scored_in_order(tools: Tools) -> None:
    codes = [f"def add(a, b):\n    return a + b + {number % 2}" for number in range(12)]
    completions = [FENCED.format(code) for code in codes]
    scores = score(LIBRARY["tests_passed"], completions, [TESTS] * 12, {}, tools)
    assert scores.values == [1.0, 0.0] * 6


@pytest.mark.parametrize(
    ("code", "params", "expected"),
    [
        ("x = 1", {}, 1.0),
        ("import os", {}, 0.9),
        ("import os", {"most": 2}, 0.5),
        ("import os, sys\nx = 1;", {"most": 2}, 0.0),
        ("import os  # noqa", {}, 0.9),
        ("# ruff: noqa\nimport os", {}, 0.9),
        ("import os", {"rules": "W"}, 1.0),
        ("x = (", {}, 0.0),
        ("x = (", {"scale": "minus the count", "most": 7}, -7.0),
        ("import os\nimport sys", {"scale": "minus the count"}, -2.0),
        ("x = '" + "a" * 200 + "'", {"line_length": 80}, 0.9),
        ("x = '" + "a" * 200 + "'", {"line_length": 320}, 1.0),
        ("import os\n" * 5_000, {"rules": "F,E,W"}, 0.0),
        ("x = " + "not " * 10_000 + "1", {"scale": "minus the count"}, -10.0),
    ],
)
def test_fewer_findings_score_higher(code: str, params: dict[str, Any], expected: float, tools: Tools) -> None:
    assert one("python_style", FENCED.format(code), tools, **params) == pytest.approx(expected)


def test_rules_that_ruff_does_not_have_are_a_failure_and_no_score(tools: Tools) -> None:
    scores = given("python_style", FENCED.format("x = 1"), tools, rules="QQ")
    assert scores.values == [None]
    assert "QQ" in scores.failures[0].message


def test_rules_are_checked_for_their_form(subtests: pytest.Subtests) -> None:
    for rules in ["", "e", "E, F", "--fix", "E;F", "E,"]:
        with subtests.test(rules=rules):
            [complaint] = LIBRARY["python_style"].check({"rules": rules})
            assert complaint.startswith("rules: ")


def test_the_range_follows_the_parameters() -> None:
    assert LIBRARY["python_syntax"].expected({"wrong_score": -1.0}) == (-1.0, 1.0)
    assert LIBRARY["python_style"].expected({"scale": "minus the count", "most": 20}) == (-20.0, 0.0)


MADE = {reasoning.COLUMN: {"source_dataset": "basic_arithmetic"}}
"""What reasoning-gym adds to a row that it made."""


def refused(preload: tuple[str, ...]) -> Sandbox:
    raise SandboxUnavailable("bubblewrap: bwrap is not installed.")


def test_without_a_sandbox_nothing_is_scored_and_every_row_is_told(subtests: pytest.Subtests) -> None:
    for key in SANDBOXED:
        with subtests.test(key=key):
            example = LIBRARY[key].examples[0]
            row = (
                example.row | MADE if key == "reasoning_gym" else example.row
            )  # its only example is a row without a judge
            scores = score(
                LIBRARY[key], [example.completion] * 2, [row] * 2, example.params, Tools(open_sandbox=refused)
            )
            assert scores.values == [None, None]
            assert [failure.kind for failure in scores.failures] == ["unavailable"] * 2
            if not LIBRARY[key].package:  # those of a package may lack the package first
                assert {failure.message for failure in scores.failures} == {"bubblewrap: bwrap is not installed."}


def test_a_batch_without_code_opens_no_sandbox() -> None:
    tools = Tools(open_sandbox=refused)
    for key, expected in [
        ("python_syntax", 0.0),
        ("python_executes", 0.0),
        ("tests_passed", 0.0),
        ("python_style", 0.0),
    ]:
        assert one(key, "no code", tools, TESTS) == expected


def test_rewards_of_code_share_one_sandbox() -> None:
    with best_tools() as tools:
        for key in (
            "python_syntax",
            "python_executes",
            "tests_passed",
            "same_output",
            "same_returns",
            "python_style",
            "python",
        ):
            example = LIBRARY[key].examples[0]
            score(LIBRARY[key], [example.completion], [example.row], example.params, tools)
        assert len(tools._sandboxes) == 1
