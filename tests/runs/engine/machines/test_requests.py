"""Which runs machines are asked for, and what becomes of a request until its host has left."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from django.db.models import F
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.joining import codes, credentials
from controlplane.catalogue.joining.models import JoinCode
from runs.engine.machines import demand, leaving, requests
from runs.engine.machines.models import Expectation, MachineRequest, MachineSource
from runs.engine.models import Attempt, Run
from runs.engine.scheduling import dispatching, launching, leasing, stopping
from runs.engine.sentences import waiting
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.intake.host_api import ingest
from tests.runs.builders import ONE_GPU, SERVER, a_host, a_run, a_user, an_attempt, event
from tests.runs.engine.machines.engine import Engine, a_source, joins
from workers.contract.run.spec import Placement
from workers.contract.wire.joining import Leaving
from workers.contract.wire.names import StopMode

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("sent")]
State = MachineRequest.State


def a_round(after: timedelta = timedelta(0)) -> datetime:
    """A round, as if `after` had passed since all that has happened."""
    if after:
        times = ("created_at", "looked_at", "ended_at", "joined_at")
        MachineRequest.objects.update(**{name: F(name) - after for name in times})
        MachineSource.objects.update(changed_at=F("changed_at") - after)
        Attempt.objects.update(created_at=F("created_at") - after)
    requests.reconcile(timezone.now())
    return timezone.now()


def says(run: Run) -> str:
    row = Expectation.objects.filter(attempt__run=run).first()
    return row.text if row else ""


def the_request() -> MachineRequest:
    return MachineRequest.objects.get()


def test_a_run_that_fits_nowhere_asks_once_and_says_so(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    dispatching.dispatch_ready()
    for _ in range(3):
        a_round(timedelta(seconds=20))
    assert [job.split("|")[0] for job in engine.jobs] == ["PENDING"]
    assert the_request().host_name.startswith("cluster-a-")
    words = "A machine from Cluster A has been requested. Job 1 is in Slurm's queue: other jobs come first."
    assert says(run) == words
    assert str(waiting(run.latest())).startswith("no host is known yet. A machine from Cluster A")


def test_a_run_that_a_host_can_start_asks_for_nothing(engine: Engine) -> None:
    a_source(engine)
    a_host(gpus=1)
    a_run(hardware=ONE_GPU)
    a_round()
    assert engine.jobs == []


def test_runs_that_fit_on_one_machine_ask_for_one(engine: Engine) -> None:
    a_source(engine, gpus=2)
    for name in ("a", "b", "c"):
        a_run(name, hardware=ONE_GPU)
    a_round()
    assert len(engine.jobs) == 2
    a_round()
    assert len(engine.jobs) == 2


def test_a_machine_that_is_too_small_is_not_asked_for(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=SERVER)
    a_round()
    assert (engine.jobs, says(run)) == ([], "")


def test_no_more_machines_than_the_source_may_have(engine: Engine) -> None:
    a_source(engine, most=1)
    runs = [a_run(name, hardware=ONE_GPU) for name in ("a", "b")]
    a_round()
    a_round()
    assert len(engine.jobs) == 1
    assert says(runs[1]) == "The only machine of Cluster A is in use."


def test_a_host_that_only_has_to_become_free_is_waited_for_a_while(engine: Engine) -> None:
    a_source(engine, patience_minutes=5)
    host = a_host(gpus=1)
    busy = an_attempt(RunStatus.QUEUED, run=a_run("busy", hardware=ONE_GPU))
    move(busy, RunStatus.STARTING, reason="test", actor="test", facts={"host": host})
    leasing.insert_leases(busy, host, Placement("box", gpus=(0,)))
    run = a_run("next", hardware=ONE_GPU)
    a_round()
    assert engine.jobs == []
    assert says(run).startswith("A machine from Cluster A will be requested in 5 min")
    a_round(timedelta(minutes=6))
    assert len(engine.jobs) == 1


def test_a_run_for_a_certain_host_asks_for_none(engine: Engine) -> None:
    a_source(engine)
    a_run(hardware=ONE_GPU, host=a_host(announced_at=None))
    a_round()
    assert engine.jobs == []


def test_what_nobody_needs_any_more_is_released(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    a_round()
    stopping.request_stop(run.latest(), StopMode.NOW, a_user())
    a_round()
    assert (the_request().state, engine.cancelled) == (State.RELEASED, "1\n")
    assert codes.problem(JoinCode.objects.get()) == "This join code has expired."


def test_a_code_lives_as_long_as_its_job_waits(engine: Engine) -> None:
    a_source(engine)
    a_run(hardware=ONE_GPU)
    a_round()
    JoinCode.objects.update(expires_at=timezone.now() - timedelta(hours=5))
    a_round(timedelta(minutes=1))
    assert codes.problem(JoinCode.objects.get()) == ""


def test_a_job_that_ends_without_a_host_is_told_and_tried_again_up_to_a_bound(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    for job in range(1, demand.MAX_TRIES + 1):
        a_round(timedelta(hours=1))
        assert len(engine.jobs) == job
        engine.set("NODE_FAIL", job=str(job))
        a_round(timedelta(seconds=20))
        assert len(engine.jobs) == job
    assert "5 requests to Cluster A for this run failed" in says(run)
    assert "Job 5 ended: its node failed." in says(run)
    a_round(timedelta(hours=1))
    assert len(engine.jobs) == demand.MAX_TRIES
    MachineSource.objects.get().save()
    a_round()
    assert len(engine.jobs) == demand.MAX_TRIES + 1


def test_a_refusal_is_told_at_once(engine: Engine) -> None:
    a_source(engine)
    engine.refuse("Invalid account")
    run = a_run(hardware=ONE_GPU)
    a_round()
    assert says(run) == "Cluster A provided no machine: sbatch failed: Invalid account"
    assert (the_request().state, the_request().sentence) == (State.FAILED, "sbatch failed: Invalid account")
    a_round()
    assert says(run).startswith(
        "A machine from Cluster A failed to start. The last failure: sbatch failed: Invalid account"
    )


def test_an_answer_that_was_lost_brings_no_second_machine(engine: Engine) -> None:
    a_source(engine)
    a_run(hardware=ONE_GPU)
    a_round()
    MachineRequest.objects.update(state=State.ASKING, handle="", looked_at=None)
    a_round(timedelta(minutes=5))
    assert (len(engine.jobs), the_request().handle, the_request().state) == (1, "1", State.WAITING)


@pytest.mark.usefixtures("shared_redis")
def test_a_machine_joins_takes_the_run_and_leaves(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    a_round()
    host = joins(the_request())
    a_round()
    assert leaving.leave(host.name, Leaving.IDLE) == f"first is about to start on {host.name}."
    dispatching.dispatch_ready()
    assert (the_request().state, run.latest().host) == (State.JOINED, host)
    assert (
        leaving.leave(host.name, Leaving.IDLE) == "first is on cluster-a-" + host.name[-6:] + " or is waiting for it."
    )
    stopping.request_stop(run.latest(), StopMode.NOW, a_user())
    Attempt.objects.update(status=RunStatus.STOPPED)
    assert leaving.leave(host.name, Leaving.IDLE) == ""
    assert (the_request().state, the_request().sentence) == (
        State.LEFT,
        "The machine left because it had no run for 10 min.",
    )
    assert credentials.active(host.name) is None
    assert not Host.objects.exists()


def a_run_on_a_machine(engine: Engine) -> Attempt:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    a_round()
    joins(the_request())
    a_round()
    dispatching.dispatch_ready()
    Attempt.objects.update(claimed_at=timezone.now())
    attempt = run.latest()
    begun = event(1, "training", max_steps=20, step=0)
    ingest.accept(attempt, [begun, event(2, "checkpoint", step=4, path="checkpoints/checkpoint-4")])
    return attempt


@pytest.mark.usefixtures("shared_redis")
def test_a_run_whose_machine_is_taken_back_goes_on_on_the_next(engine: Engine) -> None:
    first = a_run_on_a_machine(engine)
    engine.set("PREEMPTED")
    a_round(timedelta(minutes=2))
    first.refresh_from_db()
    assert (first.reason, the_request().state) == ("host_preempted", State.LOST)
    launching.resume_planned(first, actor="recovery", number=0, total=0)
    a_round()
    machine = MachineRequest.objects.get(state=State.WAITING)
    joins(machine)
    a_round()
    launching.move_resumes()
    dispatching.dispatch_ready()
    second = first.run.attempts.get(number=2)
    assert (second.host.name, second.resume_step) == (machine.host_name, 4)  # type: ignore[union-attr]


@pytest.mark.usefixtures("shared_redis")
def test_a_machine_whose_node_failed_ends_its_run_as_lost_and_frees_what_it_held(engine: Engine) -> None:
    attempt = a_run_on_a_machine(engine)
    engine.set("NODE_FAIL")
    a_round(timedelta(minutes=2))
    attempt.refresh_from_db()
    assert (attempt.reason, attempt.detail) == ("host_lost", "Job 1 ended: its node failed.")
    assert not leasing.leased()
    assert credentials.active(the_request().host_name) is None


@pytest.mark.usefixtures("shared_redis")
def test_a_released_machine_takes_no_more_runs_and_is_told_to_end(engine: Engine) -> None:
    a_run_on_a_machine(engine)
    engine.set("RUNNING")
    assert requests.release(the_request(), by="olga") == ""
    assert engine.cancelled == "--batch --signal=TERM 1\n"
    assert Host.objects.get().draining


@pytest.mark.usefixtures("shared_redis")
def test_a_host_that_is_told_to_end_gives_back_what_it_had_not_begun(engine: Engine) -> None:
    a_source(engine)
    run = a_run(hardware=ONE_GPU)
    a_round()
    host = joins(the_request())
    dispatching.dispatch_ready()
    for how in (Leaving.STOPPING, Leaving.STOPPED):
        assert leaving.leave(host.name, how) == ""
    attempt = run.latest()
    assert (attempt.reason, attempt.resumes_at is not None) == ("host_preempted", True)
    assert the_request().state == State.LEFT
