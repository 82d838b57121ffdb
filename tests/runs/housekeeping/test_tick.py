from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from pytest_django import DjangoCaptureOnCommitCallbacks

from controlplane.catalogue.hardware.models import Host
from runs.engine import queries
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import RunEvent
from runs.engine.scheduling import dispatching, ending
from runs.engine.states import RunStatus
from runs.housekeeping import tick as runs_tick
from runs.intake.host_api import reaping
from tests.runs.builders import FREE, a_host, a_run, ended, event, train
from tests.runs.conftest import Sent
from workers.contract.reports.lines import Receipt
from workers.contract.wire.documents import from_dict
from workers.contract.wire.names import Task

database = pytest.mark.django_db
NOW, RECEIPT = timezone.now(), from_dict(Receipt, FREE)
LONG_AGO = NOW - timedelta(days=1)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def tick(seconds: float, *, started_at: datetime = LONG_AGO, announced: bool = True) -> None:
    if announced:
        Host.objects.update(announced_at=at(seconds))
    runs_tick.tick(at(seconds), started_at=started_at)


@pytest.fixture(autouse=True)
def _asked_every_half_minute(settings: Any) -> None:
    """The seconds of these tests are counted by it."""
    settings.REAP_EVERY_S = 30


@pytest.fixture
def starting(sent: Sent, django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks) -> Attempt:
    a_host()
    with django_capture_on_commit_callbacks(execute=True):
        a_run()
    Attempt.objects.update(launch_sent_at=NOW)
    return Attempt.objects.get()


@pytest.fixture
def running(starting: Attempt) -> Attempt:
    from runs.engine.transitions import move

    move(starting, RunStatus.RUNNING, reason="test", actor="test")
    Attempt.objects.update(claimed_at=NOW, last_seen_at=NOW, boot_id="boot-1")
    return Attempt.objects.get()


def now_of(attempt: Attempt) -> tuple[str, str]:
    attempt.refresh_from_db()
    return attempt.status, attempt.reason


def lease_states() -> list[str]:
    return list(Lease.objects.values_list("state", flat=True))


# --- a launch that nobody claims -----------------------------------------------------------------------------


@database
def test_a_launch_is_sent_again_only_once_its_message_has_had_its_time(starting: Attempt, sent: Sent) -> None:
    tick(29)
    assert len(sent.of(Task.LAUNCH_RUN)) == 1
    tick(31)
    launches = sent.of(Task.LAUNCH_RUN)
    assert len(launches) == 2
    assert launches[0] == launches[1]


@database
def test_after_three_unclaimed_launches_the_run_has_failed_and_its_slot_is_free(starting: Attempt, sent: Sent) -> None:
    for seconds in (31, 62, 93):
        assert now_of(starting)[0] == RunStatus.STARTING
        tick(seconds)
    assert len(sent.of(Task.LAUNCH_RUN)) == 3
    assert now_of(starting) == ("failed", "launch_failed")
    assert lease_states() == ["released"]


@database
def test_launches_are_not_used_up_on_a_host_out_of_reach(starting: Attempt, sent: Sent) -> None:
    Host.objects.update(announced_at=NOW)
    for seconds in (100, 200, 300):
        tick(seconds, announced=False)
    assert len(sent.of(Task.LAUNCH_RUN)) == 1
    assert now_of(starting)[0] == RunStatus.STARTING


@database
def test_a_launch_that_found_no_broker_is_sent_at_the_next_tick(starting: Attempt, sent: Sent) -> None:
    Attempt.objects.update(launches_sent=0, launch_sent_at=None)
    tick(1)
    assert len(sent.of(Task.LAUNCH_RUN)) == 2


@database
def test_a_launch_whose_spec_is_not_read_any_more_keeps_no_other(starting: Attempt, sent: Sent) -> None:
    Run.objects.filter(pk=starting.run_id).update(spec={})
    a_host("other")
    a_run("well")
    dispatching.dispatch_ready()
    well = Attempt.objects.get(run__name="well")
    Attempt.objects.update(launches_sent=1, launch_sent_at=NOW)
    tick(31)
    assert now_of(starting) == ("failed", "launch_failed")
    assert starting.launches_sent == 1
    assert list(starting.leases.values_list("state", flat=True)) == ["released"]
    assert [spec["attempt_id"] for spec, _ in sent.of(Task.LAUNCH_RUN)][1:] == [well.pk]


@database
def test_a_stopped_launch_is_cancelled_once_it_has_had_its_time(starting: Attempt) -> None:
    Attempt.objects.update(stop_mode="now")
    tick(29)
    assert now_of(starting)[0] == RunStatus.STARTING
    tick(31)
    assert now_of(starting) == ("stopped", "cancelled")


@database
@pytest.mark.parametrize("hours", [-1, 1])
def test_a_clock_that_is_set_by_an_hour_ends_no_launch(starting: Attempt, sent: Sent, hours: int) -> None:
    Attempt.objects.update(launches_sent=3)
    tick(hours * 3600.0)
    assert now_of(starting)[0] == RunStatus.STARTING
    tick(hours * 3600.0 + 31)
    assert now_of(starting) == ("failed", "launch_failed")
    assert len(sent.of(Task.LAUNCH_RUN)) == 1


@database
def test_a_launch_is_not_forgotten_for_the_hour_that_a_clock_was_set_back(starting: Attempt, sent: Sent) -> None:
    tick(-3600)
    assert len(sent.of(Task.LAUNCH_RUN)) == 2
    tick(-3590)
    assert len(sent.of(Task.LAUNCH_RUN)) == 2


@database
def test_a_last_launch_has_its_time_when_the_control_plane_was_away_itself(starting: Attempt) -> None:
    Attempt.objects.update(launches_sent=3)
    tick(600)
    assert now_of(starting)[0] == RunStatus.STARTING
    tick(631)
    assert now_of(starting) == ("failed", "launch_failed")


@pytest.mark.django_db(transaction=True)
def test_two_ticks_at_once_send_one_message(starting: Attempt, sent: Sent) -> None:
    Host.objects.update(announced_at=at(31))
    together = threading.Barrier(2)

    def one() -> None:
        from django.db import connection

        together.wait()
        runs_tick.resend_launches(at(31))
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sent.of(Task.LAUNCH_RUN)) == 2


# --- silence -------------------------------------------------------------------------------------------------


@database
def test_silence_sends_a_reaper_and_changes_no_status(running: Attempt, sent: Sent) -> None:
    tick(29)
    assert not sent.of(Task.REAP_RUN)
    tick(31)
    tick(36)
    assert len(sent.of(Task.REAP_RUN)) == 1
    tick(62)
    assert len(sent.of(Task.REAP_RUN)) == 2
    assert now_of(running) == ("running", "")
    assert RunEvent.objects.filter(kind="reap_sent").count() == 1


@database
def test_a_reaper_is_told_what_to_prove_even_where_the_folder_is_gone(running: Attempt, sent: Sent) -> None:
    tick(31)
    (arguments,) = sent.of(Task.REAP_RUN)
    assert arguments[3] == running.placement


@database
def test_silence_is_counted_only_from_the_control_planes_own_start(running: Attempt, sent: Sent) -> None:
    tick(600, started_at=at(590))
    assert not sent.of(Task.REAP_RUN)
    tick(621, started_at=at(590))
    assert len(sent.of(Task.REAP_RUN)) == 1


@database
@pytest.mark.parametrize("set_to", [-3600, 3600, -50 * 365 * 86_400], ids=["back", "forward", "1976"])
def test_a_clock_that_is_set_ends_nobody_and_asks_again_as_usual(running: Attempt, sent: Sent, set_to: int) -> None:
    tick(set_to, announced=False)  # no host has announced itself by the new clock yet: nobody is asked
    assert not sent.of(Task.REAP_RUN)
    tick(set_to + 10)
    tick(set_to + 41)
    assert len(sent.of(Task.REAP_RUN)) == 2
    assert now_of(running) == ("running", "")


@database
def test_a_control_plane_that_started_by_a_later_clock_has_not_stopped_listening(running: Attempt, sent: Sent) -> None:
    tick(-3600, started_at=at(-1))
    assert len(sent.of(Task.REAP_RUN)) == 1


@database
def test_out_of_reach_is_a_reading_of_silence(running: Attempt, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "STARTED_AT", LONG_AGO)
    assert queries.out_of_reach_since(running, at(29)) is None
    assert queries.out_of_reach_since(running, at(31)) == NOW
    monkeypatch.setattr(queries, "STARTED_AT", at(20))
    assert queries.out_of_reach_since(running, at(31)) is None


@database
def test_a_reaper_that_finds_the_supervisor_alive_changes_nothing(running: Attempt) -> None:
    reaping.reaped(running, lock_held=True, receipt=None, lines=[], detail="pid 100 holds it")
    assert now_of(running) == ("running", "")


@database
def test_a_supervisor_found_alive_again_and_again_is_said_once_for_each_silence(running: Attempt) -> None:
    for _ in range(3):
        reaping.reaped(running, lock_held=True, receipt=None, lines=[], detail="")
    assert RunEvent.objects.filter(kind="reaped").count() == 1
    Attempt.objects.update(last_seen_at=timezone.now())
    reaping.reaped(running, lock_held=True, receipt=None, lines=[], detail="")
    assert RunEvent.objects.filter(kind="reaped").count() == 2


@database
def test_a_reaper_that_finds_a_dead_one_hands_in_its_lines_and_ends_it(running: Attempt) -> None:
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=[train(1)], detail="")
    assert now_of(running) == ("failed", "supervisor_lost")
    assert (running.last_seq, lease_states()) == (1, ["released"])


@database
def test_an_end_left_in_the_outbox_is_the_end(running: Attempt) -> None:
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=[ended(1, "completed")], detail="")
    assert now_of(running) == ("succeeded", "completed")


@database
@pytest.mark.parametrize(
    ("reason", "status"), [("completed", "succeeded"), ("vllm_exited", "failed"), ("stopped_by_user", "stopped")]
)
def test_a_reason_that_was_written_down_outlives_its_supervisor(running: Attempt, reason: str, status: str) -> None:
    lines = [event(1, "phase", phase="stopping", detail=f"{reason} 20 steps.", reason=reason)]
    lines.append(event(2, "phase", phase="verifying", detail=""))
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=lines, detail="It was gone.")
    assert (*now_of(running), running.detail) == (status, reason, "20 steps. It was gone.")


@database
def test_a_supervisor_lost_while_the_trainer_saved_leaves_a_stopped_run(running: Attempt) -> None:
    lines = [event(1, "stop_seen", mode="save"), event(2, "phase", phase="stopping", detail="the trainer saves")]
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=lines, detail="It was gone.")
    assert (*now_of(running), running.detail) == ("stopped", "stopped_by_user", "It may not have saved: It was gone.")


@database
def test_a_stop_that_the_lost_supervisor_never_saw_is_not_why_the_run_ended(running: Attempt) -> None:
    Attempt.objects.update(stop_mode="now")
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=[], detail="")
    assert now_of(running) == ("failed", "supervisor_lost")


@database
def test_without_proof_a_lost_supervisors_resources_are_quarantined(running: Attempt) -> None:
    reaping.reaped(running, lock_held=False, receipt=None, lines=[], detail="")
    assert lease_states() == ["quarantined"]


@database
@pytest.mark.parametrize(("launches", "status"), [(1, "starting"), (3, "failed")])
def test_a_reaper_that_finds_nothing_ends_only_the_last_launch(starting: Attempt, launches: int, status: str) -> None:
    Attempt.objects.update(launches_sent=launches)
    reaping.reaped(starting, lock_held=False, receipt=None, lines=[], detail="no folder")
    assert now_of(starting)[0] == status


# --- hosts ---------------------------------------------------------------------------------------------------


@database
def test_another_boot_id_means_host_lost_and_its_memory_is_free(running: Attempt, sent: Sent) -> None:
    host = Host.objects.get()
    Host.objects.update(inventory={**host.inventory, "boot_id": "boot-2"})
    tick(31)
    assert now_of(running) == ("failed", "host_lost")
    assert lease_states() == ["released"]
    assert len(sent.of(Task.REAP_RUN)) == 1


@database
def test_a_cloned_machine_that_announces_another_boot_ends_no_run_that_is_heard(running: Attempt) -> None:
    host = Host.objects.get()
    Host.objects.update(inventory={**host.inventory, "boot_id": "boot-2"})
    tick(2)  # between two heartbeats
    tick(600, started_at=at(590))  # after a pause of the control plane's own
    assert now_of(running) == ("running", "")
    assert lease_states() == ["held"]


@database
def test_a_cloned_machine_frees_nothing_of_a_host_whose_runs_are_heard(running: Attempt) -> None:
    ending.give_up(running, "anna")
    host = Host.objects.get()
    Host.objects.update(inventory={**host.inventory, "boot_id": "boot-2"})
    Attempt.objects.update(last_seen_at=at(30))
    tick(31)
    assert lease_states() == ["quarantined"]


@database
def test_a_reboot_is_seen_although_the_clock_was_set_back(running: Attempt) -> None:
    host = Host.objects.get()
    Host.objects.update(inventory={**host.inventory, "boot_id": "boot-2"})
    tick(-3600)
    assert now_of(running) == ("failed", "host_lost")


@database
@pytest.mark.parametrize("booted", [True, False])
def test_what_a_lost_hosts_attempts_left_is_asked_for_until_it_came(running: Attempt, sent: Sent, booted: bool) -> None:
    if booted:
        host = Host.objects.get()
        Host.objects.update(inventory={**host.inventory, "boot_id": "boot-2"})
    else:
        ending.give_up(running, "anna")
    for seconds in (31, 62, 93):
        tick(seconds)
    assert len(sent.of(Task.REAP_RUN)) == 3
    reaping.reaped(running, lock_held=False, receipt=RECEIPT, lines=[train(1)], detail="")
    assert (now_of(running), running.last_seq) == (("failed", "host_lost"), 1)
    assert lease_states() == ["released"]
    tick(124)
    assert len(sent.of(Task.REAP_RUN)) == 3


@database
def test_an_attempt_that_was_given_up_and_still_speaks_is_not_asked_for(running: Attempt, sent: Sent) -> None:
    ending.give_up(running, "anna")
    Attempt.objects.update(last_seen_at=at(60))
    tick(62)
    assert not sent.of(Task.REAP_RUN)


@database
def test_a_host_given_up_by_a_person_keeps_its_resources_from_others(running: Attempt) -> None:
    assert ending.give_up(running, "anna")
    assert now_of(running) == ("failed", "host_lost")
    assert lease_states() == ["quarantined"]
    assert not ending.give_up(running, "anna")


@database
@pytest.mark.parametrize(("boot", "state"), [("boot-1", "quarantined"), ("boot-2", "released")])
def test_what_a_given_up_host_held_is_free_once_it_has_booted_anew(running: Attempt, boot: str, state: str) -> None:
    ending.give_up(running, "anna")
    host = Host.objects.get()
    Host.objects.update(inventory={**host.inventory, "boot_id": boot})
    tick(31)
    assert lease_states() == [state]


@database
def test_a_step_that_fails_does_not_keep_the_others_from_their_work(
    running: Attempt, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_tick, "resend_launches", lambda now: 1 / 0)
    tick(31)
    assert len(sent.of(Task.REAP_RUN)) == 1
