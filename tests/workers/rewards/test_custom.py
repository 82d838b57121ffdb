"""Functions that an admin wrote: what is refused by its text, and what they do in the sandbox."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workers.rewards.sandboxes import BACKENDS, best_tools, tools_on
from workers.rewards.entries import custom
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Scores
from workers.rewards.scoring import score
from workers.rewards.tools import Tools

pytestmark = pytest.mark.processes

ROWS = [{"answer": "1", "level": 3, "prompt": "a"}, {"answer": "2", "prompt": "b"}, {"answer": "3", "prompt": "c"}]


@pytest.fixture(scope="module", params=BACKENDS)
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    with tools_on(request.param) as tools:
        yield tools


def given(source: str, tools: Tools, texts: Any = ("1", "1", "3"), rows: Any = ROWS, **params: Any) -> Scores:
    return score(LIBRARY["python"], texts, rows, {"source": source, **params}, tools)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("", "it defines no function reward"),
        ("def a(completions): return []\ndef b(completions): return []", "a in line 1, b in line 2"),
        ("def f(completions, **kw):\n    return kw['completion_ids']", "line 2 reads completion_ids"),
        ("class reward: pass", "it defines no function reward"),
        ("def reward(completions)\n    return []", "line 1: expected ':'"),
        ("def reward(completions, x)\n", "line 1"),
        ("def reward(completions): yield 1", "must return a list, not yield"),
        ("def reward(): return []", "an argument of reward must be completions"),
        ("def reward(unclear, **columns): return []", "an argument of reward must be completions"),
        ("def reward(*completions): return []", "an argument of reward must be completions"),
        ("def reward(completions, *rest): return []", "must not take *rest"),
        ("def reward(completions, /, **c): return []", "remove the / from its signature"),
        ("x = 1\0", "it contains a NUL byte"),
        ("x = " + "[" * 5_000, "nested brackets"),
        ("x = " + "-" * 100_000 + "1", ""),
        ("x = '\ud800'", "it can't be parsed"),
        ("def reward(completions, **columns): return [1.0] * len(completions)", ""),
        ("def reward(completions, answer, *, level=None): return []", ""),
        ("def reward(completions):\n    def inner(): yield 1\n    return list(inner())", ""),
    ],
)
def test_a_text_that_can_be_no_reward_is_refused_without_running_it(source: str, says: str) -> None:
    said = custom.problem(source)
    if not says and source.startswith("x"):
        assert said  # by whatever word the parser has for it
    else:
        assert (says in said) if says else said == ""
    complaints = LIBRARY["python"].check({"source": source})
    assert bool(complaints) is bool(said)
    assert all(complaint.startswith("source: ") for complaint in complaints)


def test_columns_come_by_their_names_and_only_those_asked_for(tools: Tools) -> None:
    source = (
        "def reward(completions, answer, level=(), *, prompts, tokens):\n"
        "    return [len(t) * 100 + (l or 0) * 10 + int(a) + (n or 0) / 10 + len(p) / 100\n"
        "            for t, a, l, p, n in zip(completions, answer, level, prompts, tokens)]\n"
    )
    assert given(source, tools, [Completion("1", tokens=5), "22", ""]).values == [131.51, 202.01, 3.01]
    named = "def reward(completions, **columns):\n    return [float(len(columns))] * len(completions)\n"
    names = set(custom.columns_of([Completion("1")] * 3, ROWS))
    assert names == {"answer", "level", "prompt", "prompts", "turns", "tokens"}
    assert given(named, tools).values == [6.0] * 3


def test_a_conversation_comes_with_its_turns(tools: Tools) -> None:
    source = "def reward(completions, turns):\n    return [sum(t['role'] == 'tool' for t in each) for each in turns]\n"
    turns = ({"role": "assistant", "content": "", "tool_calls": []}, {"role": "tool", "content": "7"})
    assert given(source, tools, [Completion("7", turns), "1", "2"]).values == [1.0, 0.0, 0.0]


def test_none_is_not_applicable_and_no_failure(tools: Tools) -> None:
    scores = given("def reward(completions, **c):\n    return [None, 0.5, True]\n", tools)
    assert (scores.values, scores.failures) == ([None, 0.5, 1.0], [])


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        ("raise KeyError('gone')", "error", "KeyError: 'gone'"),
        ("return [1.0]", "wrong_length", "It returned 1 score for 3 completions."),
        ("return None", "wrong_length", "It returned nothing"),
        ("return {1: 2}", "wrong_length", "It returned dict"),
        ("while True: pass", "timeout", ""),
        ("return ['a' * 10**10]", "memory", ""),
        ("while True: print('a' * 1000)", "output", ""),
        ("import os; os._exit(0)", "error", ""),
        ("import ctypes; ctypes.string_at(0)", "killed", ""),
        ("return [object()] * 3", "error", ""),
    ],
)
def test_what_a_function_does_wrong_is_a_failure_of_every_row(body: str, kind: str, says: str, tools: Tools) -> None:
    scores = given(f"def reward(completions, **columns):\n    {body}\n", tools, seconds=1.0)
    assert scores.values == [None] * 3
    assert [failure.index for failure in scores.failures] == [0, 1, 2]
    assert {failure.kind for failure in scores.failures} == {kind}
    assert says in scores.failures[0].message
    assert scores.failures[0].message


def test_single_scores_that_are_no_numbers_are_failures_of_their_rows(tools: Tools) -> None:
    scores = given("def reward(completions, **c):\n    return [float('nan'), '1.0', 0.25]\n", tools)
    assert scores.values == [None, None, 0.25]
    assert [(failure.index, failure.kind) for failure in scores.failures] == [(0, "not_a_number"), (1, "not_a_number")]


def test_a_column_that_the_rows_do_not_have_is_named(tools: Tools) -> None:
    scores = given("def reward(completions, colour):\n    return colour\n", tools)
    assert scores.failures[0].message == "It requires the column colour, which the dataset doesn't have."


def test_a_traceback_names_the_line_of_the_source(tools: Tools) -> None:
    scores = given("def reward(completions, **columns):\n    x = 1\n    return 1 / 0\n", tools)
    assert "ZeroDivisionError" in scores.failures[0].message
    assert "line 3" in scores.failures[0].traceback


def test_it_sees_no_environment_and_no_files_of_the_process(tools: Tools, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    os.environ["H4_TEST_SECRET"] = "hidden"
    source = (
        "import os\n"
        "def reward(completions, **columns):\n"
        "    seen = [float('H4_TEST_SECRET' in os.environ)]\n"
        f"    for path in ({str(secret)!r}, '/proc/self/environ', '/proc/1/environ'):\n"
        "        try:\n"
        "            seen.append(float('hidden' in open(path).read()))\n"
        "        except OSError:\n"
        "            seen.append(0.0)\n"
        "    return seen[:3] if not seen[3] else [1.0, 1.0, 1.0]\n"
    )
    try:
        assert given(source, tools).values == [0.0, 0.0, 0.0]
    finally:
        del os.environ["H4_TEST_SECRET"]


def test_a_large_batch_fits(tools: Tools) -> None:
    texts = ["x" * 100_000] * 64
    source = "def reward(completions, **columns):\n    return [len(text) / 1e5 for text in completions]\n"
    assert given(source, tools, texts, [{"answer": "a" * 10_000}] * 64).values == [1.0] * 64


def test_a_trial_says_what_the_function_did_with_samples() -> None:
    with best_tools() as tools:
        good = custom.trial(custom.STARTING_SOURCE, [("7", {"answer": "7"}), ("8", {"answer": "7"})], tools)
        assert (good.problem, good.scores.values, good.printed) == ("", [1.0, 0.0], [])
        raised = custom.trial(
            "def reward(completions, **c):\n    print('here')\n    return 1 / 0\n", [("7", {})], tools
        )
        assert "ZeroDivisionError" in raised.problem
        assert "line 3" in raised.traceback
        assert raised.printed == ["here\n"]
        silent = custom.trial(
            "def reward(completions, **c):\n    return [None for _ in completions]\n", [("7", {})], tools
        )
        assert silent.problem == "It scored no sample: it returned None for each of them."
        assert custom.trial("def reward(", [("7", {})], tools).problem.startswith("line 1: ")


def test_only_admins_may_use_it() -> None:
    assert LIBRARY["python"].admin_only
    assert [key for key, reward in LIBRARY.items() if reward.admin_only] == ["python"]


IDIOMS = {
    "prompts first": (
        "def reward(prompts, completions, answer, **kw):\n    return [c == a for c, a in zip(completions, answer)]"
    ),
    "another name": "def exact(completions, answer, **kw):\n    return [c == a for c, a in zip(completions, answer)]",
    "messages": (
        "def exact(completions, answer, **kw):\n    return [c[0]['content'] == a for c, a in zip(completions, answer)]"
    ),
    "another argument": "def exact(responses, answer):\n    return [c == a for c, a in zip(responses, answer)]",
    "async": "async def reward(completions, answer):\n    return [c == a for c, a in zip(completions, answer)]",
    "a helper beside it": (
        "def same(a, b):\n    return a == b\n"
        "def exact(completions, answer, **kw):\n    return [same(c, a) for c, a in zip(completions, answer)]"
    ),
    "an array": (
        "class Array(list):\n    def tolist(self):\n        return list(self)\n"
        "def reward(completions, answer):\n    return Array(c == a for c, a in zip(completions, answer))"
    ),
}


@pytest.mark.parametrize("source", IDIOMS.values(), ids=IDIOMS)
def test_a_function_as_people_write_it_runs(source: str, tools: Tools) -> None:
    assert custom.problem(source) == ""
    assert given(source, tools).values == [1.0, 0.0, 1.0]
