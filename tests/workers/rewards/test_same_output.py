"""Code that must print what the row's reference answer prints, in the real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.workers.rewards.sandboxes import BACKENDS, best_tools, tools_on
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Scores
from workers.rewards.scoring import score
from workers.rewards.tools import CACHE_SIZE, Tools
from workers.sandbox import selftest
from workers.sandbox.pool import Sandbox
from workers.trainer.scoring.failures import Failures

pytestmark = pytest.mark.processes

REWARD = LIBRARY["same_output"]
ANSWER = "for n in range(3):\n    print(n)"
OWN_NUMBER = "import os\nprint('run', os.urandom(8).hex())"
"""Prints something else in each run, so that notes tell one run of it from another."""


@pytest.fixture(scope="module", params=BACKENDS)
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    with tools_on(request.param) as tools:
        yield tools


def given(codes: list[str], answer: Any, tools: Tools, **params: Any) -> Scores:
    """`codes`: of a group, which shares its row."""
    assert REWARD.check(params) == []
    completions = [f"Here:\n```python\n{code}\n```" for code in codes]
    return score(REWARD, completions, [{"row": 0, "answer": answer}] * len(codes), params, tools)


def told(code: str, tools: Tools, answer: str = ANSWER, **params: Any) -> tuple[float | None, str]:
    """The score of one completion and its note."""
    scores = given([code], answer, tools, **params)
    assert scores.failures == []
    return scores.values[0], scores.notes[0]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("print('0\\n1\\n2')", ""),
        ("print('0 \\n1\\t\\n2\\n\\n')", ""),
        ("import sys\nprint('0\\n1\\n2')\nsys.exit()", ""),
        ("print('0\\n1\\n2')\nexit(0)", ""),
        ("if __name__ == '__main__':\n    print('0\\n1\\n2')", ""),
        ("from __future__ import annotations\nprint('0\\n1\\n2')", ""),
        ("print('0\\n 1\\n2')", "It prints ' 1' instead of '1' on line 2."),
        ("print('0\\n1')", "It prints fewer lines than expected."),
        ("print('0\\n1\\n2\\n3')", "It prints more lines than expected."),
        ("def f():\n    print('0\\n1\\n2')", "It prints nothing instead of '0\\n1\\n2'."),
        ("print('0\\n1\\n2')\nraise ValueError('no')", "ValueError: no"),
        ("print('0\\n1\\n2')\nexit(1)", "It ended early by calling exit(1)."),
        ("import os\nos.write(1, b'0\\n1\\n2')\nos._exit(0)", "It ended early with exit code 0."),
    ],
)
def test_a_program_scores_if_it_ends_well_and_prints_the_same(code: str, says: str, tools: Tools) -> None:
    assert told(code, tools) == (float(not says), says)


def test_white_space_at_the_ends_counts_where_asked_for(tools: Tools) -> None:
    assert told("print('0\\n1\\n2')", tools, compare="exactly") == (1.0, "")
    assert told("print('0\\n1\\n2', end='')", tools, compare="exactly")[0] == 0.0
    assert told("print('0 \\n1\\n2')", tools, compare="exactly")[0] == 0.0


def test_a_program_without_end_or_with_endless_output_scores_nothing_and_the_others_as_before(tools: Tools) -> None:
    codes = ["while True: pass", "for _ in range(100):\n    print('a' * 10**6)", ANSWER]
    scores = given(codes, ANSWER, tools, seconds=2.0)
    assert (scores.values, scores.failures) == ([0.0, 0.0, 1.0], [])
    assert scores.notes == ["It took longer than 2 s.", "It wrote more than 65,536 bytes to stdout.", ""]


@pytest.mark.parametrize("code", ["print(input())\nprint(input())", "import sys\nprint(sys.stdin.read())"])
def test_both_programs_read_the_same_standard_input(code: str, tools: Tools) -> None:
    answer = "print(open(0).read())"
    assert told(code, tools, answer, standard_input="one\nzwölf\n") == (1.0, "")
    assert told("print(input())", tools, answer, standard_input="one\ntwo\n")[0] == 0.0
    assert told(code, tools, "print(1)", standard_input="9" * 10_000)[0] == 0.0


def test_without_standard_input_there_is_nothing_to_read(tools: Tools) -> None:
    assert told("print(input())", tools)[1].startswith("EOFError")


def test_both_programs_run_after_the_set_up(tools: Tools) -> None:
    assert told("print(sqrt(4))", tools, "print(sqrt(16) / 2)", setup="from math import sqrt") == (1.0, "")


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ("print(1 / 0)", "error", "fails, so it has no score. ZeroDivisionError: division by zero"),
        ("The sum is 45.", "error", "fails, so it has no score. SyntaxError"),
        ("while True: pass", "timeout", "fails, so it has no score. It took longer than 1 s."),
        ("while True: print('a' * 1000)", "output", "fails, so it has no score. It wrote more than"),
        ("x = 1", "error", "prints nothing, so it has no score."),
        ("def f():\n    return 1", "error", "It defines functions, but this reward compares only printed output"),
        ("```python\n\n```", "error", "has no code"),
        ("#" * 50_001, "error", "has no code, or more than 50,000 characters"),
    ],
)
def test_a_reference_that_judges_nothing_is_a_failure_and_punishes_nobody(
    answer: str, kind: str, says: str, tools: Tools
) -> None:
    completions = ["```python\nprint(1)\n```", "no code"]
    scores = score(REWARD, completions, [{"answer": answer}] * 2, {"seconds": 1.0}, tools)
    assert scores.values == [None, None]
    assert [(each.index, each.kind) for each in scores.failures] == [(0, kind), (1, kind)]
    assert says in scores.failures[0].message


def test_a_run_is_told_which_row_has_a_reference_that_judges_nothing(tools: Tools) -> None:
    events: list[dict[str, Any]] = []
    failures = Failures(share=0.5, event=lambda _, data, step: events.append(data))
    failures.note("prints", [7, 7], given(["print(1)"] * 2, "x = 1", tools).failures)
    failures.judge_batch(0, lambda notes: notes)
    [event] = events
    assert (event["row"], event["count"], event["of"]) == (7, 2, 2)
    assert event["message"] == "The row's reference answer prints nothing, so it has no score."


@pytest.mark.parametrize("answer", [None, "", "  \n"])
def test_a_row_without_an_answer_does_not_count(answer: str | None) -> None:
    with closing(Tools(open_sandbox=lambda _: pytest.fail("nothing is run"))) as tools:
        scores = given(["print(1)"], answer, tools)
    assert (scores.values, scores.failures) == ([None], [])


def test_a_completion_without_code_scores_nothing_and_an_answer_needs_no_fence(tools: Tools) -> None:
    for answer in (ANSWER, f"So:\n```python\n{ANSWER}\n```\nThis counts."):
        scores = score(REWARD, [ANSWER, f"```\n{ANSWER}\n```"], [{"answer": answer}] * 2, {}, tools)
        assert (scores.values, scores.notes) == ([0.0, 1.0], ["It has no code.", ""])
    assert score(REWARD, [ANSWER], [{"answer": ANSWER}], {"needs_block": False}, tools).values == [1.0]


def test_rows_are_compared_each_with_its_own_answer_in_order(tools: Tools) -> None:
    completions = [f"```\nprint({number // 2})\n```" for number in range(8)]
    rows = [{"answer": f"print({number % 4})"} for number in range(8)]
    assert score(REWARD, completions, rows, {}, tools).values == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_a_reference_runs_once_for_its_group_and_later_batches() -> None:
    with best_tools() as tools:
        first = given(["print(1)"] * 4, OWN_NUMBER, tools).notes
        assert "instead of 'run " in first[0]
        assert set(given(["print(1)"] * 4, OWN_NUMBER, tools).notes) == set(first) == {first[0]}
        assert given(["print(1)"], OWN_NUMBER, tools, seconds=4.0).notes != first[:1]
        assert given(["print(1)"], OWN_NUMBER, tools, standard_input="1").notes != first[:1]


def test_another_run_keeps_nothing_of_this_one_and_results_make_room_for_newer_ones() -> None:
    with best_tools() as tools, best_tools() as others:
        first = given(["print(1)"], OWN_NUMBER, tools).notes
        assert given(["print(1)"], OWN_NUMBER, others).notes != first
        for number in range(CACHE_SIZE):
            tools.cache(number, number)
        assert given(["print(1)"], OWN_NUMBER, tools).notes != first


def test_a_reference_that_failed_for_lack_of_a_sandbox_is_run_again() -> None:
    backend = selftest.probe().backend
    if backend is None:
        pytest.skip("no sandbox holds here")
    closed = Sandbox(backend)
    closed.close()
    opened = iter([closed])
    with best_tools() as working:
        tools = Tools(open_sandbox=lambda preload: next(opened, None) or working.sandbox(*preload))
        assert given([ANSWER], ANSWER, tools).failures[0].message == (
            "The sandbox could not be restarted: The sandbox was closed."
        )
        tools.close()
        assert given([ANSWER], ANSWER, tools).values == [1.0]
