"""Automatic resumes: when they are planned, when they happen, and who may prevent them."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.hosts import actions
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import RunEvent
from runs.engine.scheduling import ending, launching, leasing, recovery
from runs.engine.scheduling.ending import late_receipt
from runs.engine.states import RunStatus
from runs.engine.tags import archive
from runs.housekeeping import tick as runs_tick
from runs.intake.host_api import ingest
from runs.pages.run_page import header
from tests.runs.builders import FREE, a_host, a_run, a_user, an_attempt, ended, event
from workers.contract.reports.lines import OutboxLine, Receipt
from workers.contract.run.spec import Placement, RecoverySpec
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import EndReason

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
FREED = from_dict(Receipt, FREE)
HELD = from_dict(Receipt, {**FREE, "free": False})


def a_running_attempt(resumes: int = 2, pause_s: int = 60) -> Attempt:
    run = a_run(host=a_host(), recovery=RecoverySpec(resumes, pause_s))
    attempt = an_attempt(RunStatus.STARTING, run=run)
    Attempt.objects.filter(pk=attempt.pk).update(host=run.host, claimed_at=timezone.now())
    attempt.refresh_from_db()
    leasing.insert_leases(attempt, run.host, Placement("box", cpu_slots=(0,)))
    ingest.accept(attempt, [event(1, "training", max_steps=20, step=0), saved(2, 10)])
    attempt.refresh_from_db()
    return attempt


def saved(seq: int, step: int) -> OutboxLine:
    return event(seq, "checkpoint", step=step, path=f"checkpoints/checkpoint-{step}")


def lose(attempt: Attempt, reason: EndReason = EndReason.SUPERVISOR_LOST, receipt: Receipt | None = FREED) -> None:
    ending.end(attempt, reason, actor="test", receipt=receipt)
    attempt.refresh_from_db()


def tick(attempt: Attempt, seconds: float) -> datetime:
    now = (attempt.ended_at or timezone.now()) + timedelta(seconds=seconds)
    recovery.resume_due(now)
    return now


def attempts() -> list[int]:
    return list(Attempt.objects.order_by("number").values_list("number", flat=True))


@pytest.mark.parametrize("reason", sorted(recovery.REASONS - {EndReason.HOST_PREEMPTED}))
def test_a_run_resumes_after_its_pause_from_its_last_checkpoint(reason: EndReason) -> None:
    first = a_running_attempt()
    lose(first, reason)
    tick(first, 50)
    assert attempts() == [1]
    tick(first, 70)
    second = Attempt.objects.get(number=2)
    assert second.resume_from.endswith("/1/checkpoints/checkpoint-10")
    note = RunEvent.objects.get(kind="resumed")
    assert (note.actor, note.data["automatic"], note.data["of"]) == (recovery.ACTOR, 1, 2)


@pytest.mark.parametrize("reason", [EndReason.TRAINER_EXITED, EndReason.OOM, EndReason.REWARD_FAILED])
def test_an_end_that_a_resume_would_meet_again_plans_none(reason: EndReason) -> None:
    first = a_running_attempt()
    lose(first, reason)
    assert first.resumes_at is None


def test_a_preempted_run_resumes_uncounted_as_long_as_it_gets_further() -> None:
    first = a_running_attempt(resumes=0)
    lose(first, EndReason.HOST_PREEMPTED)
    page = header.head(first.run, a_user())["resumes"]
    assert (page.number, page.step) == (0, 10)
    tick(first, 70)
    second = Attempt.objects.get(number=2)
    assert "automatic" not in RunEvent.objects.get(kind="resumed").data
    Attempt.objects.filter(pk=second.pk).update(status=RunStatus.RUNNING, claimed_at=timezone.now(), resume_step=10)
    second.refresh_from_db()
    lose(second, EndReason.HOST_PREEMPTED)
    assert second.resumes_at is None


def test_a_run_that_asks_for_no_resumes_stays_ended() -> None:
    first = a_running_attempt(resumes=0)
    lose(first)
    assert first.resumes_at is None


def test_nothing_is_planned_until_the_old_attempt_is_proved_gone() -> None:
    first = a_running_attempt()
    lose(first, EndReason.HOST_LOST, receipt=None)
    assert (first.resumes_at, Lease.objects.get().state) == (None, Lease.QUARANTINED)
    late_receipt(first, HELD, actor="reaper")
    first.refresh_from_db()
    assert first.resumes_at is None
    late_receipt(first, FREED, actor="reaper")
    first.refresh_from_db()
    assert first.resumes_at is not None


def test_each_pause_is_twice_as_long_and_the_number_of_resumes_is_limited() -> None:
    attempt = a_running_attempt(resumes=2, pause_s=100)
    for pause_s, seq in ((100, 3), (200, 4)):
        lose(attempt)
        assert attempt.resumes_at is not None
        assert attempt.ended_at is not None
        assert round((attempt.resumes_at - attempt.ended_at).total_seconds()) == pause_s
        tick(attempt, pause_s + 1)
        attempt = Attempt.objects.order_by("number").last()  # type: ignore[assignment]
        Attempt.objects.filter(pk=attempt.pk).update(status=RunStatus.RUNNING, first_seq=seq, last_seq=seq - 1)
        attempt.refresh_from_db()
    lose(attempt)
    assert (attempts(), attempt.resumes_at) == ([1, 2, 3], None)


def test_two_ticks_queue_one_attempt() -> None:
    first = a_running_attempt()
    lose(first)
    stale = Attempt.objects.select_related("run__owner").get(pk=first.pk)
    tick(first, 61)
    with pytest.raises(launching.NotResumable):
        launching.resume_planned(stale, actor=recovery.ACTOR, number=1, total=2)
    tick(first, 62)
    assert attempts() == [1, 2]


def test_the_tick_resumes_what_is_due() -> None:
    first = a_running_attempt()
    lose(first)
    runs_tick.tick(timezone.now() + timedelta(seconds=61))
    assert attempts() == [1, 2]


def test_a_resume_by_a_user_takes_the_place_of_the_planned_one() -> None:
    first = a_running_attempt()
    lose(first)
    launching.resume(first.run, a_user())
    tick(first, 61)
    assert attempts() == [1, 2]
    assert RunEvent.objects.get(kind="resumed").actor == "olga"


def test_a_stop_by_a_user_plans_no_resume() -> None:
    first = a_running_attempt()
    Attempt.objects.filter(pk=first.pk).update(stop_mode="now")
    first.refresh_from_db()
    lose(first)
    assert first.resumes_at is None


def test_an_archived_run_is_not_resumed() -> None:
    first = a_running_attempt()
    lose(first)
    archive([first.run_id], a_user())
    tick(first, 61)
    assert attempts() == [1]


def test_nothing_is_resumed_after_a_checkpoint_of_the_last_step() -> None:
    first = a_running_attempt()
    ingest.accept(first, [saved(3, 20)])
    lose(first)
    assert first.resumes_at is None


def test_the_page_says_when_and_a_user_may_call_it_off(client: Client) -> None:
    first = a_running_attempt()
    lose(first)
    run = Run.objects.get()
    page = header.head(run, a_user())["resumes"]
    assert (page.number, page.of, page.step) == (1, 2, 10)
    client.force_login(a_user())
    assert "Resumes automatically at" in client.get(f"/runs/{run.pk}/").content.decode()
    client.post(f"/runs/{run.pk}/no-resume")
    tick(first, 61)
    assert attempts() == [1]
    assert header.head(Run.objects.get(), a_user())["resumes"] is None


def test_a_receipt_that_comes_again_does_not_plan_what_was_called_off() -> None:
    first = a_running_attempt()
    lose(first)
    recovery.cancel_planned(first.run, "olga")
    late_receipt(first, FREED, actor="reaper")
    first.refresh_from_db()
    assert first.resumes_at is None


def test_the_reports_of_the_host_plan_it_too() -> None:
    first = a_running_attempt()
    ingest.accept(first, [ended(3, "vllm_exited")])
    first.refresh_from_db()
    assert first.resumes_at is not None


def given_up(first: Attempt) -> None:
    """As an operator does whose host is lost for good."""
    lose(first, EndReason.HOST_LOST, receipt=None)
    assert first.resumes_at is None
    actions.release(first.leases.all(), first.run.owner)
    Host.objects.filter(pk=first.host_id).update(announced_at=timezone.now() - timedelta(hours=1))
    tick(first, 120)


@pytest.mark.parametrize(
    ("folder", "pinned", "goes_to"),
    [("f1", False, "other"), ("f2", False, "box"), ("", False, "box"), ("f1", True, "box")],
)
def test_a_run_of_a_lost_host_resumes_on_one_that_shares_its_folder(folder: str, pinned: bool, goes_to: str) -> None:
    first = a_running_attempt()
    other = a_host("other")
    for host, shared in ((first.host, "f1" if folder else ""), (other, folder)):
        assert host is not None
        Host.objects.filter(pk=host.pk).update(inventory={**host.inventory, "runs_folder": shared})
    if not pinned:
        Run.objects.update(host=None)
    given_up(first)
    assert str(Attempt.objects.get(number=2).host) == goes_to


def test_after_an_unusable_checkpoint_the_one_before_it_is_taken() -> None:
    first = a_running_attempt()
    ingest.accept(first, [saved(3, 15)])
    lose(first)
    tick(first, 61)
    second = Attempt.objects.get(number=2)
    assert second.resume_step == 15
    Attempt.objects.filter(pk=second.pk).update(status=RunStatus.STARTING, first_seq=4, last_seq=3)
    second.refresh_from_db()
    lose(second, EndReason.CHECKPOINT_UNUSABLE)
    tick(second, 121)
    assert Attempt.objects.get(number=3).resume_step == 10
