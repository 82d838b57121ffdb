"""Functions that must return what the row's reference function returns, in the real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.rewards.sandboxes import best_tools
from workers.rewards import arguments
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score
from workers.rewards.tools import Tools

REWARD = LIBRARY["same_returns"]
ADD = "def add(a: int, b: int) -> int:\n    return a + b"
SORT = "def ranked(values: list[int]) -> list[int]:\n    values.sort()\n    return values"
METHOD = "class Solution:\n    def area(self, width: float, height: float) -> float:\n        return width * height"
OWN = {"answer": "def last(items):\n    return items[-1]", "args": [[[1, 2]], [["a"]], [[None, True, 3]]]}
IN_PROMPT = {"answer": "def age(who):\n    return who['age']", "prompt": ">>> age({'age': 3})\n3\nage({'age': 9})"}
SCORED: dict[str, tuple[dict[str, Any], str, float]] = {
    "the same": ({"answer": ADD}, "def add(a, b):\n    return b + a", 1.0),
    "something else": ({"answer": ADD}, "def add(a, b):\n    return a - b", 0.0),
    "no such function": ({"answer": ADD}, "print(3)", 0.0),
    "arguments are never shared": ({"answer": SORT}, "def ranked(values):\n    return sorted(values)", 1.0),
    "a method": ({"answer": METHOD}, METHOD.replace("width * height", "height * width"), 1.0),
    "a fenced answer": ({"answer": f"```python\n{ADD}\n```"}, ADD, 1.0),
    "the row's arguments": (OWN, "def last(items):\n    return items[len(items) - 1]", 1.0),
    "some of the row's arguments": (OWN, "def last(items):\n    return items[1]", 1 / 3),
    "arguments as JSON": ({**OWN, "args": "[[[1, 2]], [[4]], [[5, 6]]]"}, "def last(x):\n    return max(x)", 1.0),
    "arguments by name": (
        {"answer": ADD, "inputs": [{"a": 1, "b": 5}, {"a": 2, "b": 2}, {"a": 0, "b": 0}]},
        "def add(b, a):\n    return a + b",
        1.0,
    ),
    "calls in the prompt": (IN_PROMPT, "def age(who):\n    return who['age'] or 1", 1.0),
    "the function that is asked for": (
        {"answer": f"{ADD}\ndef helper(a: int) -> int:\n    return a", "prompt": "Write `add(a, b)`."},
        ADD,
        1.0,
    ),
    "no annotations": (
        {"answer": "def size(x):\n    return len(x)"},
        "def size(x):\n    return sum(1 for _ in x)",
        1.0,
    ),
}
REFUSED = {
    "print(1)": "defines no function",
    "def f(": "defines no function",
    "import random\ndef f(a: int):\n    return random.random()": "returns something else each time",
    "def f(a: int):\n    print(a)": "returns nothing",
    "def f(a: int):\n    return 7": "the same for all made-up arguments",
    "def f(tree: 'Node'):\n    return tree.left": "No arguments could be made up",
    "def f(a: int):\n    return {a}": "isn't plain",
    "def f(a: int):\n    raise ValueError('no')": "no",
}


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with best_tools() as tools:
        yield tools


@pytest.mark.processes
def test_the_share_of_calls_that_return_the_same_is_the_score(tools: Tools, subtests: pytest.Subtests) -> None:
    for name, (row, code, expected) in SCORED.items():
        with subtests.test(name):
            scores = score(REWARD, [f"```python\n{code}\n```"], [{"row": 0, **row}], {}, tools)
            assert (scores.values, scores.failures) == ([pytest.approx(expected)], []), scores


@pytest.mark.processes
def test_a_reference_that_cannot_be_compared_with_is_a_failure(tools: Tools, subtests: pytest.Subtests) -> None:
    for answer, words in REFUSED.items():
        with subtests.test(answer):
            scores = score(REWARD, [f"```python\n{ADD}\n```"], [{"row": 0, "answer": answer}], {}, tools)
            assert scores.values == [None]
            assert words in scores.failures[0].message


def test_arguments_are_made_up_from_annotations(subtests: pytest.Subtests) -> None:
    for annotation, kind in (
        ("int", int),
        ("str", str),
        ("list[str]", list),
        ("Optional[int]", int),
        ("int | None", int),
        ("dict[str, int]", dict),
        ("tuple[int, str]", list),
        ("List[List[int]]", list),
        ("'float'", float),
    ):
        with subtests.test(annotation):
            function = arguments.function_of(f"def f(a: {annotation}, b=1):\n    return a", {})
            assert function
            [calls] = arguments.made_up_calls(function)
            assert len(calls) >= 2
            assert {type(call[0]) for call in calls} == {kind}
