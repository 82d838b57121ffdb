"""A dataset's own answers are scored by a reward config: what fails is listed, counted, and can be left out."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.datasets import worker as datasets_worker
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.references import showing, starting, worker
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.rewards import saving
from tests.controlplane.catalogue.datasets.steps import ready
from tests.runs.builders import a_user

pytestmark = [pytest.mark.django_db, pytest.mark.processes]

NUMBERS = [{"question": f"{n} + {n}?", "answer": str(2 * n)} for n in range(5)]
TAG = {"name": "right", "function": "numeric_match", "params": {"source": "answer tag"}}
FORM = {"name": "form", "function": "think_tags"}
ASKS = {"name": "asks", "function": "judge", "params": {"endpoint": "elsewhere"}}
TESTS = {"name": "tests", "function": "tests_passed"}
PRINTS = {"name": "prints", "function": "same_output", "params": {"seconds": 2.0}}
MAPPING = ColumnMapping(prompt="question", answer="answer")
CODE = [
    {"question": "Double it.", "answer": "def double(n):\n    return 2 * n", "tests": ["assert double(2) == 4"]},
    {"question": "Halve it.", "answer": "def halve(n):\n    return n", "tests": ["assert halve(2) == 1"]},
    {"question": "Loop.", "answer": "def f():\n    while True: pass", "tests": ["assert f() == 1"]},
]


def checked(version: DatasetVersion, *components: dict[str, Any]) -> ReferenceCheck:
    check = starting.start(version, saving.make("config", list(components)), a_user())
    worker.score_waiting()
    check.refresh_from_db()
    return check


def test_an_answer_is_put_where_the_component_looks_for_it_and_its_form_fails_nothing():
    check = checked(ready(NUMBERS, MAPPING), TAG, FORM, ASKS)
    assert (check.status, check.problem, check.done, check.failed_rows) == ("succeeded", "", 5, 0)
    form = {"scored": 5, "failed": 0, "total": 0.0}
    assert check.counts == {"right": {"scored": 5, "failed": 0, "total": 5.0}, "form": form}


def test_answers_that_fail_are_listed_and_left_out_of_a_new_version():
    version = ready([*NUMBERS, {"question": "odd?", "answer": "none of these"}], MAPPING)
    check = checked(version, TAG)
    [failure] = check.failures.all()
    assert (failure.component, failure.score, failure.excerpt) == ("right", None, "none of these")
    assert "can't read this answer" in failure.message
    derived = starting.leave_out(check, a_user())
    datasets_worker.process(derived)
    derived.refresh_from_db()
    assert (derived.rows, derived.parent) == (5, version)
    assert derived.source["why"] == "leaving out answers that fail config v1"


def test_solutions_run_against_their_own_tests_in_the_sandbox():
    mapping = ColumnMapping(prompt="question", answer="answer", test_cases="tests")
    check = checked(ready(CODE, mapping), TESTS | {"params": {"seconds": 0.5}})
    assert (check.done, check.failed_rows) == (3, 2), check.problem
    wrong, endless = check.failures.all()
    assert (wrong.score, wrong.message[:19]) == (0.0, "0 of 1 tests passed")
    assert endless.message


def test_programs_that_cannot_be_compared_are_listed_with_what_they_did():
    answers = ["print(1)", "```python\nprint(2)\n```", "print(1 / 0)", "def double(n):\n    return 2 * n"]
    check = checked(ready([{"question": f"{n}?", "answer": each} for n, each in enumerate(answers)], MAPPING), PRINTS)
    assert check.counts == {"prints": {"scored": 4, "failed": 2, "total": 2.0}}
    fails, silent = check.failures.all()
    assert (fails.score, silent.score) == (None, None)
    assert "ZeroDivisionError: division by zero" in fails.message
    assert "prints nothing" in silent.message


def test_functions_without_tests_are_called_and_a_reward_that_cannot_do_so_is_blamed():
    answers = ["def double(n: int):\n    return 2 * n", "def last(items):\n    return items[-1]"]
    rows = [{"question": f"{n}?", "answer": answer, "args": None} for n, answer in enumerate(answers)]
    rows[1]["args"] = [[[1, 2]], [[3]]]
    version = ready(rows, MAPPING)
    verdict = showing.verdict(checked(version, PRINTS))
    assert verdict.text == "Every answer fails for one reason."
    assert "use “Returns what the reference returns”" in verdict.fix
    returns = saving.make("returns", [{"name": "returns", "function": "same_returns"}])
    check = starting.start(version, returns, a_user("ann"))
    worker.score_waiting()
    check.refresh_from_db()
    assert (check.counts, showing.verdict(check).grade) == (
        {"returns": {"scored": 2, "failed": 0, "total": 2.0}},
        "good",
    )


def test_a_check_that_was_interrupted_goes_on_after_what_is_stored(monkeypatch):
    monkeypatch.setattr(worker, "BATCH", 2)
    version = ready(NUMBERS, MAPPING)
    check = starting.start(version, saving.make("config", [TAG]), a_user())
    ReferenceCheck.objects.filter(pk=check.pk).update(
        status="running", done=3, counts={"right": {"scored": 3, "failed": 1}}
    )
    worker.score_waiting()
    check.refresh_from_db()
    assert (check.status, check.done, check.counts) == (
        "succeeded",
        5,
        {"right": {"scored": 5, "failed": 1, "total": 2.0}},
    )


def test_a_stopped_check_stores_nothing_more():
    check = starting.start(ready(NUMBERS, MAPPING), saving.make("config", [TAG]), a_user())
    assert starting.stop(check)
    worker.score_waiting()
    check.refresh_from_db()
    assert (check.status, check.done) == ("stopped", 0)
    assert not starting.stop(check)


def test_too_many_failures_end_a_check(monkeypatch):
    monkeypatch.setattr(worker, "MAX_FAILED", 1)
    monkeypatch.setattr(worker, "BATCH", 2)
    wrong = [{"question": "?", "answer": f"word {'x' * n}"} for n in range(6)]
    check = checked(ready(wrong, MAPPING), TAG)
    assert (check.status, check.done, check.problem) == ("stopped", 2, worker.TOO_MANY)


def test_rows_that_are_gone_end_a_check_with_a_sentence():
    version = ready(NUMBERS, MAPPING)
    version.rows_path.unlink()
    check = checked(version, TAG)
    assert check.status == "failed"
    assert check.problem.startswith("The rows can't be read:")


@pytest.mark.parametrize(
    ("mapping", "component", "words"),
    [
        (ColumnMapping(prompt="question"), TAG, "has no answers"),
        (MAPPING, ASKS, "No component of config v1 can score an answer"),
    ],
)
def test_what_cannot_be_checked_is_refused(mapping, component, words):
    with pytest.raises(DatasetError, match=words):
        starting.start(ready(NUMBERS, mapping), saving.make("config", [component]), a_user())


def test_the_same_check_is_not_started_twice_at_once():
    version, rewards = ready(NUMBERS, MAPPING), saving.make("config", [TAG])
    assert starting.start(version, rewards, a_user()) == starting.start(version, rewards, a_user())


def test_a_version_without_any_row_is_not_made():
    check = checked(ready([{"question": "?", "answer": "word"}], MAPPING), TAG)
    with pytest.raises(DatasetError, match="no row would be left"):
        starting.leave_out(check, a_user())
