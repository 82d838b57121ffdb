"""The timeline: phases with their durations, who did what, and pages of it."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.states import RunStatus
from runs.pages.run_page import timeline
from tests.controlplane.people import viewer
from tests.runs.builders import FREE, a_run, an_attempt

pytestmark = pytest.mark.django_db
START = timezone.now() - timedelta(hours=1)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def told(attempt: Attempt, kind: str, seconds: float, actor: str = "supervisor", **data: Any) -> None:
    RunEvent.objects.create(run=attempt.run, attempt=attempt, at=at(seconds), kind=kind, actor=actor, data=data)


@pytest.fixture
def attempt() -> Attempt:
    attempt = an_attempt()
    RunEvent.objects.all().delete()
    Attempt.objects.filter(pk=attempt.pk).update(created_at=at(0))
    told(attempt, "status", 20, "dispatcher", to="starting")
    told(attempt, "phase", 25, phase="claimed")
    told(attempt, "phase", 30, phase="vllm_starting")
    told(attempt, "phase", 72, phase="vllm_ready")
    told(attempt, "phase", 72.1, phase="trainer_starting")
    told(attempt, "stage", 80, stage="loading model")
    told(attempt, "training", 100, max_steps=10, step=0)
    told(attempt, "status", 100.2, "supervisor", to="running")
    return Attempt.objects.get(pk=attempt.pk)


def spans(run: Run) -> dict[str, str]:
    return {span.label: span.took for span in timeline.phases(run, now=at(400))[0]["spans"]}


def test_each_phase_lasts_until_the_next_one_begins(attempt: Attempt) -> None:
    assert spans(attempt.run) == {
        "Waiting in the queue": "20 s",
        "Reaching the host": "5 s",
        "Accepted by the host": "5 s",
        "Loading vLLM": "42 s",
        "Starting the trainer": "7 s",
        "Trainer: loading model": "20 s",
        "Training": "5 min",
    }


def test_the_last_phase_of_a_live_attempt_goes_on(attempt: Attempt) -> None:
    assert [s.label for s in timeline.phases(attempt.run)[0]["spans"] if s.going] == ["Training"]


def test_an_end_ends_the_last_phase(attempt: Attempt) -> None:
    told(attempt, "phase", 110, phase="stopping")
    told(attempt, "status", 112, to="stopped", reason="stopped_by_user")
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.STOPPED, reason="stopped_by_user", receipt=FREE)
    run = Run.objects.get(pk=attempt.run_id)
    assert spans(run)["Training"] == "10 s"
    assert spans(run)["Stopping"] == "2 s"
    assert "All processes ended; all resources released." in viewer().get(f"/runs/{run.pk}/events/").content.decode()


def test_a_hosts_clock_that_is_behind_makes_no_negative_phase(attempt: Attempt) -> None:
    RunEvent.objects.filter(kind="phase").update(at=at(-50))
    assert all(span.seconds >= 0 for span in timeline.phases(attempt.run)[0]["spans"])


def test_every_attempt_has_its_own_phases_the_latest_first(attempt: Attempt) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.STOPPED)
    attempt.run.attempts.create(id=f"{attempt.run_id}-2", number=2, resume_step=5)
    found = timeline.phases(Run.objects.get(pk=attempt.run_id))
    assert [of["attempt"].number for of in found] == [2, 1]


def test_a_line_says_who_did_it_and_people_by_their_name(attempt: Attempt) -> None:
    told(attempt, "requested", 120, "ana", mode="save")
    lines, more = timeline.lines(attempt.run)
    assert (lines[0]["actor"], lines[0]["tone"], lines[0]["after"]) == ("ana", "soft", "19 s")
    assert (lines[1]["actor"], lines[1]["tone"]) == ("the host", "muted")
    assert more == 0


def test_times_are_moments_that_the_browser_puts_into_its_own_zone(attempt: Attempt) -> None:
    shown = viewer().get(f"/runs/{attempt.run_id}/events/").content.decode()
    assert f'datetime="{at(100).isoformat()}"' in shown


def test_a_long_timeline_comes_in_pages_and_each_event_once(attempt: Attempt) -> None:
    for i in range(timeline.PAGE_SIZE + 50):
        told(attempt, "note", 200 + i, text=f"note {i}")
    page = viewer().get(f"/runs/{attempt.run_id}/events/").content.decode()
    before = re.search(r"events/\?before=(\d+)", page)
    assert before
    rest = viewer().get(f"/runs/{attempt.run_id}/events/", {"before": before[1]}).content.decode()
    ids = re.findall('id="event-(\\d+)"', page + rest)
    assert len(ids) == len(set(ids)) == RunEvent.objects.count()
    assert "Show earlier" not in rest


def test_the_timeline_takes_as_many_queries_for_many_events_as_for_few(
    attempt: Attempt, django_assert_max_num_queries: Any
) -> None:
    client = viewer()
    for i in range(100):
        told(attempt, "note", 200 + i, text="x")
    with django_assert_max_num_queries(9):
        client.get(f"/runs/{attempt.run_id}/events/")


def test_a_run_that_waits_has_one_phase() -> None:
    found = timeline.phases(a_run())
    assert [span.label for span in found[0]["spans"]] == ["Waiting in the queue"]


def test_a_step_that_the_sentence_names_is_not_said_again(attempt: Attempt) -> None:
    told(attempt, "checkpoint", 120, path="checkpoints/checkpoint-8", step=8)
    told(attempt, "hang", 121)
    RunEvent.objects.filter(kind__in=("checkpoint", "hang")).update(step=8)
    lines, _ = timeline.lines(attempt.run)
    assert [line["beside"] for line in lines[:2]] == [["step 8"], []]
