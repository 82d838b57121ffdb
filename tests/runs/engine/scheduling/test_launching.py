from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from controlplane.catalogue.rewards import saving
from runs.engine import sentences, tags
from runs.engine.models import Attempt, Lease, Run
from runs.engine.scheduling import dispatching, launching, leasing
from runs.engine.spec import spec_of
from runs.engine.states import RunStatus
from runs.intake.host_api import claiming, ingest, reaping
from runs.intake.host_api.claiming import Claim, claim
from tests.runs.builders import FORMAT, FREE, ONE_GPU, SERVER, a_host, a_run, a_user, an_attempt, ended, event
from tests.runs.conftest import Sent
from workers.contract.reports.lines import Receipt
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import ContractError, digest, from_dict
from workers.contract.wire.names import Task

Commits = DjangoCaptureOnCommitCallbacks
database = pytest.mark.django_db
AWAY = "host box has not announced itself recently, so launches can't reach it"


def held() -> list[str]:
    leases = Lease.objects.exclude(state=Lease.RELEASED).order_by("resource")
    return list(leases.values_list("resource", flat=True))


@database
def test_a_submitted_run_leases_starts_and_is_sent_on_commit(sent: Sent, commits: Commits) -> None:
    a_host()
    with commits(execute=True):
        run = a_run()
        assert run.latest().status == RunStatus.QUEUED
        assert not sent.messages
    attempt = Attempt.objects.get()
    assert attempt.status == RunStatus.STARTING
    assert held() == ["cpu:0"]
    [[spec, token]] = sent.of(Task.LAUNCH_RUN)
    assert spec["attempt_id"] == attempt.pk == f"{run.pk}-1"
    assert spec["placement"]["cpu_slots"] == [0]
    assert len(token) == 64


@database
def test_the_spec_does_not_change_with_the_catalogue(sent: Sent) -> None:
    run = a_run()
    assert run.reward_version is not None
    run.reward_version.config.delete()
    assert spec_of(Run.objects.get()).rewards[0].function == "think_tags"


@database
def test_two_rewards_of_one_name_make_no_spec(sent: Sent) -> None:
    twice = saving.make("twice", FORMAT * 2)
    with pytest.raises(ContractError, match="same name"):
        a_run("again", reward_version=twice)


@database
def test_a_server_profile_leases_both_gpus_and_two_ports_at_once(sent: Sent, commits: Commits) -> None:
    a_host(gpus=2, cpu_slots=0)
    with commits(execute=True):
        a_run(hardware=SERVER)
    placement = Attempt.objects.get().placement or {}
    assert held() == ["gpu:0", "gpu:1", "port:21000", "port:21001"]
    assert (placement["gpus"], placement["server_gpus"]) == ([0], [1])
    assert (placement["ports"], placement["group_port"]) == ([21000], 21001)


@database
def test_a_gpu_in_use_by_something_else_is_taken_last(sent: Sent, commits: Commits) -> None:
    host = a_host(gpus=2)
    host.inventory["gpus"][0]["used_mib"] = 40_000
    host.save()
    with commits(execute=True):
        a_run(hardware=ONE_GPU)
    assert held() == ["gpu:1"]


@database
@pytest.mark.parametrize(
    ("columns", "hardware", "text"),
    [
        ({"draining": True}, None, "host box is draining"),
        ({"announced_at": None}, None, AWAY),
        # By a clock that was set back since.
        ({"announced_at": timezone.now() + timedelta(hours=1)}, None, AWAY),
        ({"cpu_slots": 0}, None, "host box has no CPU slots; this run needs 1"),
        ({"gpus": 1}, SERVER, "host box has 1 GPU; this run needs 2"),
    ],
)
def test_a_run_that_can_not_start_says_what_it_waits_for(
    columns: dict[str, object], hardware: dict[str, object] | None, text: str, sent: Sent, commits: Commits
) -> None:
    a_host(**columns)  # type: ignore[arg-type]
    with commits(execute=True):
        a_run(hardware=hardware)
    assert Attempt.objects.get().waits_for == text
    assert not sent.messages


@database
def test_a_run_behind_another_says_who_holds_what_it_needs(sent: Sent, commits: Commits) -> None:
    a_host(gpus=1)
    with commits(execute=True):
        a_run("early", hardware=ONE_GPU)
    with commits(execute=True):
        a_run("late", hardware=ONE_GPU)
    waiting = Attempt.objects.get(run__name="late")
    assert str(sentences.waiting(waiting)) == "waits for GPU 0, held by early (olga)"
    assert waiting.waits_on == Run.objects.get(name="early")
    Lease.objects.update(state=Lease.QUARANTINED)
    dispatching.dispatch_ready()
    waiting.refresh_from_db()
    text = "waits for GPU 0, in quarantine after early (olga): it was not proved free"
    assert str(sentences.waiting(waiting)) == text


@database
def test_a_released_quarantine_lets_the_next_run_start(sent: Sent, commits: Commits) -> None:
    lease = Lease.objects.create(attempt=an_attempt(), host=a_host(), resource="cpu:0", state=Lease.QUARANTINED)
    assert leasing.release(lease, by="anna")
    assert not leasing.release(lease, by="anna")
    assert Lease.objects.get().released_by == "anna"


@database
def test_priority_goes_before_age_and_a_small_run_past_a_big_one(sent: Sent) -> None:
    big, old, urgent = a_run("big", hardware=SERVER), a_run("old"), a_run("urgent")
    Attempt.objects.filter(run=urgent).update(priority=5)
    a_host(cpu_slots=1)
    assert dispatching.dispatch_ready() == 1
    statuses = {run.name: run.attempts.get().status for run in (big, old, urgent)}
    assert statuses == {"big": "queued", "old": "queued", "urgent": "starting"}


@database
def test_a_long_queue_costs_no_more_queries_than_a_short_one(
    sent: Sent, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    a_host("one", gpus=1), a_host("two", gpus=1)
    for n in range(12):
        a_run(f"run {n}", hardware=ONE_GPU)
    assert dispatching.dispatch_ready() == 2
    with django_assert_num_queries(4):  # attempts, hosts, leases, idle warm servers
        assert dispatching.dispatch_ready() == 0


@database
def test_a_broker_that_is_down_leaves_the_launch_to_the_tick(sent: Sent, commits: Commits) -> None:
    a_host()
    sent.down = True
    with commits(execute=True):
        a_run()
    attempt = Attempt.objects.get()
    assert (attempt.status, attempt.launches_sent, attempt.launch_sent_at) == (RunStatus.STARTING, 0, None)


@pytest.mark.django_db(transaction=True)
def test_of_two_dispatchers_one_gets_the_resource(sent: Sent) -> None:
    for n in range(6):
        a_run(f"run {n}")
    a_host(cpu_slots=2)
    together, failures = threading.Barrier(4), []

    def dispatch() -> None:
        from django.db import connection

        try:
            together.wait()
            dispatching.dispatch_ready()
        except Exception as error:  # shown by the assertion below
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=dispatch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert held() == ["cpu:0", "cpu:1"]
    assert Attempt.objects.filter(status=RunStatus.STARTING).count() == 2
    assert len(sent.of(Task.LAUNCH_RUN)) == 2


# --- resume --------------------------------------------------------------------------------------------------


def a_failed_run(*, ended_well: bool = True) -> Run:
    run = a_run(host=a_host(cpu_slots=2))
    first = an_attempt(RunStatus.STARTING, run=run)
    Attempt.objects.filter(pk=first.pk).update(host=run.host)
    saved = event(1, "checkpoint", step=10, path="checkpoints/checkpoint-10")
    last = ended(2, "oom") if ended_well else event(2, "note", text="the last word")
    ingest.accept(first, [saved, last])
    if not ended_well:
        from runs.engine.scheduling.ending import end
        from workers.contract.wire.names import EndReason

        end(first, EndReason.HOST_LOST, actor="test")
    return run


@database
def test_a_resume_goes_on_from_the_last_checkpoint_on_its_host(sent: Sent, commits: Commits) -> None:
    run = a_failed_run()
    with commits(execute=True):
        launching.resume(run, a_user())
    attempt = run.attempts.get(number=2)
    assert attempt.resume_from == f"{run.pk}/1/checkpoints/checkpoint-10"
    assert (attempt.status, attempt.host, attempt.first_seq, attempt.last_seq) == ("starting", run.host, 3, 2)


@database
def test_an_archived_run_that_is_resumed_is_in_sight_again(sent: Sent) -> None:
    run = a_failed_run()
    tags.archive([run.pk], a_user())
    launching.resume(run, a_user())
    run.refresh_from_db()
    assert run.archived_at is None


@database
def test_a_resume_leaves_room_for_lines_that_may_still_come(sent: Sent, commits: Commits) -> None:
    run = a_failed_run(ended_well=False)
    with commits(execute=True):
        launching.resume(run, a_user())
    assert run.attempts.get(number=2).first_seq == 3 + dispatching.LATE_ROOM


@database
@pytest.mark.parametrize("writer", ["resume", "reaped", "not_launched"])
def test_whoever_writes_an_event_holds_an_attempts_row(
    writer: str, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_failed_run()
    starting = an_attempt(RunStatus.STARTING, run=a_run("another"))
    order: list[str] = []
    lock, create = QuerySet.select_for_update, QuerySet.create
    monkeypatch.setattr(
        QuerySet,
        "select_for_update",
        lambda self, **of: order.append(f"lock {self.model.__name__}") or lock(self, **of),
    )
    monkeypatch.setattr(
        QuerySet, "create", lambda self, **row: order.append(f"add {self.model.__name__}") or create(self, **row)
    )
    {
        "resume": lambda: launching.resume(run, a_user()),
        "reaped": lambda: reaping.reaped(starting, lock_held=True, receipt=None, lines=[], detail=""),
        "not_launched": lambda: claiming.not_launched(starting, "", final=False),
    }[writer]()
    assert order.index("lock Attempt") < order.index("add RunEvent")


@database
def test_a_run_that_has_not_ended_can_not_be_resumed(sent: Sent) -> None:
    with pytest.raises(launching.NotResumable):
        launching.resume(an_attempt(RunStatus.RUNNING).run, a_user())


# --- the claim -----------------------------------------------------------------------------------------------

HERE = Claim(schema=1, host="box", pid=100, boot_id="boot-1")


@pytest.fixture
def starting(sent: Sent, commits: Commits) -> Attempt:
    a_host()
    with commits(execute=True):
        a_run()
    return Attempt.objects.get()


@database
def test_the_first_supervisor_goes_and_may_ask_again(starting: Attempt) -> None:
    assert claim(starting, HERE).go
    assert claim(starting, HERE).go
    starting.refresh_from_db()
    assert (starting.supervisor_pid, starting.boot_id, starting.phase) == (100, "boot-1", "claimed")
    other = claim(starting, Claim(schema=1, host="box", pid=101, boot_id="boot-1"))
    assert (other.go, other.why) == (False, "Another supervisor has this attempt.")


@database
def test_a_supervisor_on_a_copy_of_the_host_starts_nothing(starting: Attempt) -> None:
    answer = claim(starting, Claim(schema=1, host="box", pid=100, boot_id="boot-2"))
    assert (answer.go, answer.why) == (False, "Another machine is announcing itself as box.")
    assert claim(starting, HERE).go


@database
def test_a_claim_is_answered_with_the_digest_of_the_spec_that_was_sent(starting: Attempt, sent: Sent) -> None:
    document = json.loads(json.dumps(sent.messages[-1][2][0], sort_keys=True))
    assert claim(starting, HERE).spec_sha256 == digest(from_dict(AttemptSpec, document))


@database
@pytest.mark.parametrize("status", [s for s in RunStatus if s != RunStatus.STARTING])
def test_nobody_goes_in_another_status(status: RunStatus, sent: Sent) -> None:
    a_host()
    assert not claim(an_attempt(status), HERE).go


@database
def test_a_supervisor_of_another_contract_is_refused_and_the_run_says_so(starting: Attempt) -> None:
    answer = claim(starting, Claim(schema=2, host="box", pid=1, boot_id="b"))
    starting.refresh_from_db()
    assert not answer.go
    assert (starting.reason, starting.detail) == ("launch_failed", answer.why)
    assert held() == []


@database
def test_a_supervisor_of_another_host_is_refused(starting: Attempt) -> None:
    assert not claim(starting, Claim(schema=1, host="elsewhere", pid=1, boot_id="b")).go
    starting.refresh_from_db()
    assert starting.status == RunStatus.STARTING


@database
def test_a_run_stopped_before_its_claim_is_cancelled_at_it(starting: Attempt) -> None:
    Attempt.objects.update(stop_mode="save", stop_requested_at=timezone.now() - timedelta(seconds=1))
    assert not claim(starting, HERE).go
    starting.refresh_from_db()
    assert (starting.status, starting.reason, held()) == ("stopped", "cancelled", [])


@database
def test_an_ended_attempt_frees_its_slot_for_the_next(starting: Attempt, commits: Commits, sent: Sent) -> None:
    with commits(execute=True):
        a_run("next")
    claim(starting, HERE)
    with commits(execute=True):
        ingest.accept(starting, [ended(1, "oom", receipt=FREE)])
    assert Attempt.objects.get(run__name="next").status == RunStatus.STARTING


# --- an end without a supervisor --------------------------------------------------------------------------------


@database
@pytest.mark.parametrize(
    ("how", "status", "reason"),
    [
        ("completed", "succeeded", "completed"),
        ("stopped", "stopped", "stopped_by_user"),
        ("failed", "failed", "supervisor_lost"),
    ],
)
def test_the_trainers_last_word_counts_where_its_supervisor_is_gone(how: str, status: str, reason: str) -> None:
    attempt = an_attempt(RunStatus.RUNNING)
    Attempt.objects.update(claimed_at=timezone.now())
    attempt.refresh_from_db()
    reaping.reaped(
        attempt, lock_held=False, receipt=from_dict(Receipt, FREE), lines=[event(1, "trained", how=how)], detail="Gone."
    )
    attempt.refresh_from_db()
    assert (attempt.status, attempt.reason) == (status, reason)
