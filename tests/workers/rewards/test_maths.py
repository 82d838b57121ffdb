"""Mathematics compared in the sandbox, and what a completion that keeps it busy is worth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.workers.rewards.sandboxes import best_tools
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion, Example
from workers.rewards.scoring import score
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome

MATHS = LIBRARY["math_equivalent"]
PATIENT = 30.0
"""Seconds for one completion, where a test isn't about them: a busy machine is no reason to fail."""

EQUAL = [
    ("She makes $18.", "9 * 2 = 18 a day.\n#### 18"),
    ("It is 3/4", "0.75"),
    (r"\boxed{\frac34}", "3/4"),
    ("x=3", r"\boxed{3}"),
    (r"so $\{2, 1\}$", r"\{1,2\}"),
    (r"\boxed{(1,2)}", "(1, 2)"),
    ("<answer>1,234</answer>", "1234"),
    (r"so $x = \frac{\pi}{2}$ is it.", r"\frac{\pi}{2}"),
    (r"\boxed{12\text{ apples}}", "12"),
    (r"\boxed{5}", "5 dollars"),
    ("10^3", "1000"),
    (r"first \boxed{1}, at last \boxed{2x+2}", "$2(x+1)$"),
    ("\\boxed{7} \ud800", "7"),
]
DIFFERENT = [
    ("", "7"),
    ("none of it", "7"),
    (r"\boxed{8}", "7"),
    (r"\boxed{7", "8"),
    (r"<answer>7</answer> \boxed{8}", "8"),
    (r"\boxed{(1,2)}", "[1, 2]"),
]


@pytest.fixture(scope="module")
def tools() -> Iterator[Tools]:
    with best_tools() as tools:
        yield tools


def asked(completions: Sequence[str], answers: Sequence[Any], tools: Tools, **params: Any) -> Any:
    assert MATHS.check(params) == []
    given = [Completion(text) for text in completions]
    return score(MATHS, given, [{"answer": answer} for answer in answers], params, tools)


@pytest.mark.parametrize("example", MATHS.examples)
def test_a_worked_example_scores_as_it_says(example: Example, tools: Tools) -> None:
    given = score(MATHS, [example.completion], [example.row], example.params, tools)
    assert given.failures == []
    assert given.values == [example.score]


def test_what_is_worth_the_same_is_equal(tools: Tools) -> None:
    given = asked([text for text, _ in EQUAL], [gold for _, gold in EQUAL], tools, seconds=PATIENT)
    assert given.failures == []
    assert dict(zip(EQUAL, given.values, strict=True)) == dict.fromkeys(EQUAL, 1.0)


def test_what_is_not_scores_nothing(tools: Tools) -> None:
    given = asked([text for text, _ in DIFFERENT], [gold for _, gold in DIFFERENT], tools, seconds=PATIENT)
    assert given.failures == []
    assert dict(zip(DIFFERENT, given.values, strict=True)) == dict.fromkeys(DIFFERENT, 0.0)


def test_a_row_whose_answer_is_no_expression_does_not_count(tools: Tools) -> None:
    assert asked(["7", "7", "7"], ["of words only", None, " "], tools, seconds=PATIENT).values == [None, None, None]


def test_an_expression_that_takes_for_ever_fails_alone(tools: Tools) -> None:
    given = asked([r"\boxed{9^{9^{9^{9}}}}", r"\boxed{7}"], ["7", "7"], tools, seconds=1.0)
    assert given.values == [None, 1.0]
    assert [failure.index for failure in given.failures] == [0]
    assert given.failures[0].kind in {"timeout", "memory"}
    assert asked([r"\boxed{7}"], ["7"], tools).values == [1.0]


class Counting:
    """A sandbox that answers as told, and keeps what it was asked."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.jobs: list[Job] = []

    def run(self, jobs: Sequence[Job], limits: Limits) -> list[Outcome]:
        self.jobs += jobs
        return self.outcomes

    def close(self) -> None: ...


def test_the_same_answer_is_compared_once_and_a_failure_is_that_of_every_row() -> None:
    box = Counting([Outcome(Kind.OK, True), Outcome(Kind.MEMORY, message="too much", traceback="line 1")])
    held = Tools(open_sandbox=lambda preload: box)  # type: ignore[arg-type,return-value]
    given = asked([r"\boxed{7}", r"so \boxed{8}", r"I think \boxed{7}", r"\boxed{8}"], ["7"] * 4, held)
    assert len(box.jobs) == 2
    assert given.values == [1.0, None, 1.0, None]
    assert [(f.index, f.kind, f.message) for f in given.failures] == [
        (1, "memory", "math-verify: too much"),
        (3, "memory", "math-verify: too much"),
    ]


def test_without_a_sandbox_it_says_so() -> None:
    given = score(MATHS, ["7"], [{"answer": "7"}], {})
    assert [failure.kind for failure in given.failures] == ["unavailable"]
