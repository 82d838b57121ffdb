from __future__ import annotations

import pytest
from pytest_django import DjangoAssertNumQueries, DjangoCaptureOnCommitCallbacks

from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import MetricRow, RunEvent
from runs.engine.states import RunStatus
from runs.intake.host_api import ingest
from tests.runs.builders import FREE, a_host, a_run, an_attempt, ended, event, train

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]


def seqs() -> list[int]:
    return list(MetricRow.objects.order_by("seq").values_list("seq", flat=True))


def fresh(attempt: Attempt) -> Attempt:
    return Attempt.objects.select_related("run").get(pk=attempt.pk)


def test_lines_are_stored_and_acknowledged() -> None:
    attempt = an_attempt()
    assert ingest.accept(attempt, [train(1, reward=0.25), train(2, reward=0.5)]) == 2
    run = Run.objects.get()
    assert seqs() == [1, 2]
    assert (run.last_seq, run.step, run.last_metrics) == (2, 2, {"reward": 0.5})
    assert fresh(attempt).last_seen_at is not None


def test_a_batch_sent_twice_changes_nothing() -> None:
    attempt = an_attempt()
    batch = [train(1), event(2, "note", text="hi"), train(3)]
    assert ingest.accept(attempt, batch) == 3
    assert ingest.accept(attempt, batch) == 3
    assert seqs() == [1, 3]
    assert RunEvent.objects.filter(kind="note").count() == 1


def test_an_end_sent_twice_ends_once() -> None:
    attempt = an_attempt()
    for _ in range(2):
        ingest.accept(attempt, [ended(1)])
    assert fresh(attempt).status == RunStatus.SUCCEEDED
    assert RunEvent.objects.filter(kind="status", data__to="succeeded").count() == 1


def test_nothing_after_a_gap_is_stored() -> None:
    attempt = an_attempt()
    assert ingest.accept(attempt, [train(1), train(3)]) == 1
    assert ingest.accept(attempt, [train(4)]) == 1
    assert ingest.accept(attempt, [train(2), train(3), train(4)]) == 4
    assert seqs() == [1, 2, 3, 4]


def test_an_overlap_is_ignored_and_its_first_version_stays() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [train(1, reward=1.0), train(2, reward=2.0)])
    assert ingest.accept(attempt, [train(2, reward=9.0), train(3, reward=3.0)]) == 3
    assert list(MetricRow.objects.order_by("seq").values_list("values", flat=True))[1] == {"reward": 2.0}


def test_lines_out_of_order_are_stored_in_order() -> None:
    attempt = an_attempt()
    assert ingest.accept(attempt, [train(3), train(1), train(2)]) == 3
    assert Run.objects.get().step == 3


def test_lines_after_the_end_are_stored_and_move_nothing() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [ended(1, "oom")])
    assert ingest.accept(attempt, [train(2), event(3, "training", max_steps=5, step=0)]) == 3
    assert seqs() == [2]
    assert fresh(attempt).status == RunStatus.FAILED


def test_lines_of_an_attempt_that_was_never_dispatched_are_refused() -> None:
    attempt = an_attempt(RunStatus.QUEUED)
    with pytest.raises(ingest.NotStarted):
        ingest.accept(attempt, [ended(1)])
    assert fresh(attempt).status == RunStatus.QUEUED


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (train(0), "seq 0"),
        (event(2, "gossip"), "gossip"),
        (event(2, "training", max_steps="many", step=0), "max_steps"),
        (event(2, "phase"), "data.phase"),
        (train(2, step=2**31), "step"),
        (ended(2, receipt={"free": True}), "receipt"),
        (train(2, reward=1.0, kl=float("nan")), "data.kl of train is not a finite number"),
        (train(2, reward=float("inf")), "data.reward"),
        (train(2, tokens=10**400), "data.tokens"),
        (train(2, **{"n" * 200: 1.0, "n" * 201: 2.0}), f"data.{'n' * 200} of train .* its name is too long"),
        (train(2, **{f"m{n}": 1.0 for n in range(2_001)}), "more than 2000"),
    ],
)
def test_a_malformed_line_is_named_and_nothing_of_its_batch_stored(line: ingest.OutboxLine, what: str) -> None:
    attempt = an_attempt()
    with pytest.raises(ingest.BadLine, match=what) as error:
        ingest.accept(attempt, [train(1), line])
    assert error.value.index == 1
    assert seqs() == []


def test_training_makes_it_running_and_stopping_stops_it() -> None:
    attempt = an_attempt(RunStatus.STARTING)
    ingest.accept(attempt, [event(1, "phase", phase="preparing"), event(2, "training", max_steps=20, step=0)])
    assert fresh(attempt).status == RunStatus.RUNNING
    assert Run.objects.get().max_steps == 20
    ingest.accept(attempt, [event(3, "phase", phase="stopping", detail="SIGTERM")])
    assert fresh(attempt).status == RunStatus.STOPPING
    assert fresh(attempt).phase_detail == "SIGTERM"


@pytest.mark.parametrize("status", [RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING])
@pytest.mark.parametrize(
    ("reason", "final"), [("completed", "succeeded"), ("oom", "failed"), ("stopped_by_user", "stopped")]
)
def test_an_end_is_final_from_wherever_it_finds_the_attempt(status: RunStatus, reason: str, final: str) -> None:
    attempt = an_attempt(status)
    ingest.accept(attempt, [ended(1, reason, detail="so it went", exit_codes={"trainer": 137})])
    now = fresh(attempt)
    assert (now.status, now.reason, now.detail, now.exit_codes) == (final, reason, "so it went", {"trainer": 137})
    assert now.receipt is not None
    assert now.receipt["free"] is True


def test_a_reason_unknown_here_still_ends_the_attempt() -> None:
    attempt = an_attempt()
    ingest.accept(attempt, [ended(1, "moonquake")])
    assert fresh(attempt).reason == "supervisor_error"
    assert "moonquake" in fresh(attempt).detail


@pytest.mark.parametrize(("receipt", "state"), [(FREE, "released"), ({**FREE, "free": False}, "quarantined")])
def test_leases_are_released_only_against_proof(
    receipt: dict[str, object], state: str, commits: DjangoCaptureOnCommitCallbacks
) -> None:
    host = a_host()
    with commits(execute=True):
        attempt = a_run(host=host).latest()
    with commits(execute=True):
        a_run("second", host=host)
        ingest.accept(attempt, [ended(1, "oom", receipt=receipt)])
    assert Lease.objects.get(attempt=attempt).state == state
    second = Attempt.objects.get(run__name="second")
    assert second.status == ("starting" if state == "released" else "queued")


def test_a_port_that_is_not_free_stays_in_quarantine_alone() -> None:
    attempt = an_attempt()
    host = a_host()
    for resource in ("gpu:0", "port:21000"):
        Lease.objects.create(attempt=attempt, host=host, resource=resource)
    ingest.accept(attempt, [ended(1, "vllm_exited", receipt={**FREE, "port_free": False})])
    assert dict(Lease.objects.values_list("resource", "state")) == {"gpu:0": "released", "port:21000": "quarantined"}


def test_a_late_proof_frees_what_was_quarantined() -> None:
    attempt = an_attempt()
    Lease.objects.create(attempt=attempt, host=a_host(), resource="gpu:0")
    ingest.accept(attempt, [ended(1, "oom", receipt=None), ended(2, "oom")])
    assert Lease.objects.get().state == "released"
    assert fresh(attempt).receipt == FREE


def test_a_heartbeat_touches_last_seen_in_one_query(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    attempt = an_attempt()
    with django_assert_num_queries(1):
        assert ingest.accept(attempt, []) == 0
    assert fresh(attempt).last_seen_at is not None


def test_a_batch_takes_the_same_queries_however_long_it_is(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    attempt = an_attempt()
    lines = [train(seq) for seq in range(1, 501)]
    with django_assert_num_queries(7):
        ingest.accept(attempt, lines)


# --- over attempts -------------------------------------------------------------------------------------------


def resumed(step: int, *, before: list[ingest.OutboxLine]) -> tuple[Attempt, Attempt]:
    """A run whose first attempt wrote `before` and failed, and its second one, about to train from `step`."""
    host = a_host()
    run = a_run(host=host)
    first = an_attempt(RunStatus.STARTING, run=run)
    ingest.accept(first, before)
    first.refresh_from_db()
    second = Attempt.objects.create(id=f"{run.pk}-2", run=run, number=2, host=host, status="starting")
    Attempt.objects.filter(pk=second.pk).update(first_seq=first.last_seq + 1, last_seq=first.last_seq)
    second.refresh_from_db()
    ingest.accept(second, [event(first.last_seq + 1, "training", max_steps=20, step=step)])
    return fresh(first), fresh(second)


def test_a_resume_makes_later_steps_of_earlier_attempts_void() -> None:
    lines = [train(seq, step=seq) for seq in range(1, 6)]
    resumed(3, before=[*lines, ended(6, "oom")])
    void = MetricRow.objects.filter(superseded=True).values_list("step", flat=True)
    assert sorted(step or 0 for step in void) == [4, 5]
    assert Run.objects.get().step == 3


def test_lines_handed_in_late_by_an_earlier_attempt_are_void_where_the_resume_says() -> None:
    first, second = resumed(1, before=[train(1, step=1), ended(2, "oom")])
    Attempt.objects.filter(pk=second.pk).update(first_seq=100)
    ingest.accept(first, [train(3, step=1), train(4, step=2)])
    assert dict(MetricRow.objects.filter(seq__gte=3).values_list("seq", "superseded")) == {3: False, 4: True}
    assert Run.objects.get().step == 1


def test_a_line_outside_the_attempts_own_range_is_refused() -> None:
    first, second = resumed(0, before=[ended(1, "oom")])
    with pytest.raises(ingest.BadLine, match="before this attempt's first"):
        ingest.accept(second, [train(1)])
    with pytest.raises(ingest.BadLine, match="belongs to a later attempt"):
        ingest.accept(first, [train(2)])
