"""The words of a run page's head: its makings, status facts and receipt."""

from __future__ import annotations

from typing import Any

import pytest
from django.utils.html import strip_tags

from runs.engine import queries
from runs.engine.models import Attempt
from runs.engine.states import RunStatus
from runs.pages.run_page.checkpoint_views import CheckpointRow
from runs.pages.run_page.head_facts import setup_facts, status_facts
from runs.pages.run_page.receipt import receipt_of
from tests.runs.builders import FREE, an_attempt

pytestmark = pytest.mark.django_db


def facts(attempt: Attempt) -> list[str]:
    run = attempt.run
    return [
        strip_tags(fact.text) for fact in status_facts(run, attempt, queries.summary(run), job=None, stop_effect="")
    ]


def test_a_running_run_shows_its_step_and_an_ended_one_its_time() -> None:
    attempt = an_attempt()
    attempt.run.step, attempt.run.max_steps = 5, 20
    assert facts(attempt)[0] == "step 5 of 20"
    attempt = an_attempt(RunStatus.QUEUED)
    assert facts(attempt)[0].endswith("queue")


def test_a_receipt_is_good_only_if_all_is_released() -> None:
    attempt = an_attempt()
    assert receipt_of(attempt) is None
    attempt.receipt = {**FREE, "processes_ended": 3, "seconds_to_gone": 2}
    good = receipt_of(attempt)
    attempt.receipt = {**FREE, "free": False, "survivors": [7, 8]}
    bad = receipt_of(attempt)
    assert good
    assert bad
    assert (good["tone"], good["summary"][0]) == ("good", "3 processes ended in 2 s")
    assert (bad["tone"], strip_tags(dict(bad["facts"])["Still running"])) == ("bad", "pid 7, 8")


def test_the_makings_name_the_model_by_the_last_part_of_its_folder() -> None:
    run = an_attempt().run
    run.spec = {**run.spec, "model": {"path": "/srv/models/qwen"}}
    label, _, text, title = next(iter(setup_facts(run)))
    assert (label, text, title) == ("Model", "qwen", "/srv/models/qwen")


class Saved:
    """A checkpoint as far as its place in a store needs one."""

    removed = superseded = stored = False
    storage: Any = None


@pytest.mark.parametrize(
    ("kind", "host_problem", "word"),
    [
        ("checkpoint_uploading", "", "uploading"),
        ("checkpoint_uploading", "gone", "partly uploaded"),
        ("checkpoint_not_stored", "", "not stored"),
        ("checkpoint_unstored", "", "no longer in the store"),
    ],
)
def test_a_checkpoints_copy_has_its_state_in_words(kind: str, host_problem: str, word: str) -> None:
    saved: Any = Saved()
    saved.storage = type("Event", (), {"kind": kind, "data": {"problem": "full"}})()
    row = CheckpointRow(saved, [], best=False, resumable=True, host_problem=host_problem)
    assert row.store_note is not None
    assert row.store_note.word == word
