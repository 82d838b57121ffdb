"""From a frozen spec to a claimed attempt: submit or resume, lease everything at once, send the launch."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User, limits_raised
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.gateway import endpoint
from runs.engine.models import Attempt, Priority, Run, new_run_id
from runs.engine.records import RunEvent
from runs.engine.scheduling import checkpoint_hosts, leasing, limits, queueing, spending
from runs.engine.scheduling.leasing import Shortage
from runs.engine.scheduling.queueing import Capacity
from runs.engine.spec import LaunchRequest, freeze, spec_of
from runs.engine.states import FINAL, RunStatus
from runs.engine.transitions import move
from runs.engine.warm import assignment
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import AttemptSpec, Placement, RunSpec
from workers.contract.stack import warm
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.contract.wire.names import EndReason, EventKind, Task

log = logging.getLogger(__name__)

TRIES = 5
"""Tries per attempt and pass through the queue, each after another dispatcher took a resource first."""
TRAINING_KINDS = frozenset({"train", "trial"})
"""The other kinds wait until no training does, unless a person raises their priority in the queue."""
UNDONE = ("status", "host", "placement", "first_seq", "last_seq", "dispatched_at", "waits_for", "waits_how", "waits_on")
"""Fields that a failed start may have written on the attempt in memory."""
LATE_ROOM = 1_000_000
"""Seqs left free after an attempt whose last line is missing: its outbox may still arrive."""


class NotResumable(Exception):
    """The run's last attempt has not ended yet, or has used up a limit."""


def submit(request: LaunchRequest, *, user: User, dispatch: bool = True) -> Run:
    """Freeze the spec and queue the run's first attempt; it is dispatched on commit if its resources are free.

    `dispatch=False`: the caller submits several runs and dispatches once. Raises QueueFull if the owner may not queue
    more runs, and ContractError for what the user may not launch.
    """
    if not endpoint.may_open(user, request.episodes):
        raise ContractError(endpoint.REFUSED)
    run_id = new_run_id()
    spec = freeze(request, run_id)
    dataset_version, reward_version, profile = request.chosen()
    run = Run(
        id=run_id,
        owner=user,
        host=request.host,
        dataset_version=dataset_version,
        reward_version=reward_version,
        eval_reward_version=request.eval_reward_version if spec.eval_rewards else None,
        environment_version=request.environment_version,
        profile=profile,
        group=request.group,
        trial=request.trial,
        source=request.source,
        cloned_from=request.cloned_from,
    )
    priority = request.priority if spec.kind in TRAINING_KINDS else Priority.JOB
    return _insert(run, spec, priority=priority, dispatch=dispatch)


def submit_job(source: Run, spec: RunSpec, *, host: Host | None, user: User) -> Run:
    """Queue a job on `source`'s model, below every training; `spec` is complete but for its run id.

    Raises QueueFull if the owner may not queue more runs.
    """
    run_id = new_run_id()
    run = Run(
        id=run_id,
        owner=user,
        host=host,
        dataset_version=source.dataset_version,
        reward_version=source.reward_version,
        environment_version=source.environment_version,
        source=source,
    )
    return _insert(run, replace(spec, run_id=run_id), priority=Priority.JOB)


def _insert(run: Run, spec: RunSpec, *, priority: int, dispatch: bool = True) -> Run:
    run.name, run.kind, run.spec = spec.name, spec.kind, to_dict(spec)
    with transaction.atomic():
        limits.claim_room(run.owner_id)
        _check_kept(run)
        run.save(force_insert=True)
        actor = run.owner.get_username()
        _queue(run, number=1, actor=actor, kind="submitted", host=run.host, priority=priority)
        if dispatch:
            transaction.on_commit(dispatch_ready, robust=True)
    return run


def _check_kept(run: Run) -> None:
    """Lock what the run needs against being deleted meanwhile. Raises ContractError."""
    dataset = run.dataset_version.dataset
    if not Dataset.objects.select_for_update(no_key=True).filter(pk=dataset.pk).values_list("pk"):
        raise ContractError(f"the dataset {dataset.name} was deleted")
    if run.source_id and not Run.objects.select_for_update(no_key=True).filter(pk=run.source_id).values_list("pk"):
        raise ContractError("the run with this model was deleted")


def resume(run: Run, user: User, checkpoint: Checkpoint | None = None) -> Attempt:
    """Queue a new attempt of an ended run: from this checkpoint or its last one, on the host that has it; without any,
    from the start.

    Raises QueueFull if the run's owner may not queue more runs.
    """
    return _resume(run, user.get_username(), {}, checkpoint=checkpoint)


def resume_planned(attempt: Attempt, *, actor: str, number: int, of: int) -> Attempt:
    """The same by the control plane itself, as planned at the end of `attempt`, which must still be the run's last.
    `number` 0: it isn't counted."""
    data = {"automatic": number, "of": of} if number else {}
    return _resume(attempt.run, actor, data, planned_on=attempt)


def move_resumes() -> None:
    """Queued resumes whose host can't take them are given to one that has joined since and sees the checkpoint."""
    now = timezone.now()
    resumes = Attempt.objects.filter(status=RunStatus.QUEUED, run__host=None, host__isnull=False, number__gt=1)
    for attempt in resumes.exclude(resume_from="").select_related("run", "host"):
        if attempt.host is None or not leasing.host_problem(attempt.host, now):
            continue
        checkpoint = checkpoints.by_folder(attempt.resume_from)
        host = checkpoint_hosts.host_with(checkpoint, attempt.run) if checkpoint else attempt.host
        if host != attempt.host:
            Attempt.objects.filter(pk=attempt.pk, status=RunStatus.QUEUED).update(host=host)


def _resume(
    run: Run,
    actor: str,
    data: dict[str, int],
    *,
    checkpoint: Checkpoint | None = None,
    planned_on: Attempt | None = None,
) -> Attempt:
    if run.kind in KINDS:
        raise NotResumable("A job isn't resumed. Start it again on its model's page.")
    try:
        with transaction.atomic():
            limits.claim_room(run.owner_id)
            # Locked, as writers of events lock the run's latest attempt.
            last = run.attempts.select_for_update(of=("self", "run")).select_related("run").order_by("-number")[0]
            if last.status not in FINAL:
                raise NotResumable(f"{run.name} is still {last.status}.")
            if last.run.deleted_at:
                raise NotResumable(f"{run.name} was deleted. Restore it first.")
            if planned_on is not None and (last.pk != planned_on.pk or last.resumes_at is None):
                raise NotResumable(f"{run.name} is no longer to be resumed.")
            if problem := spending.used_up(run, last.number + 1):
                raise NotResumable(problem)
            Attempt.objects.filter(pk=last.pk).update(resumes_at=None)
            checkpoint = checkpoint or checkpoint_hosts.resume_point(run)
            attempt = _queue(
                run,
                number=last.number + 1,
                actor=actor,
                kind="resumed",
                data=data,
                host=checkpoint_hosts.host_with(checkpoint, run) if checkpoint else run.host,
                priority=last.priority,
                resume_from=checkpoint.folder if checkpoint else "",
                resume_step=checkpoint.step if checkpoint else 0,
            )
            # An active run is never archived.
            Run.objects.filter(pk=run.pk).exclude(archived_at=None).update(archived_at=None)
            transaction.on_commit(dispatch_ready, robust=True)
    except IntegrityError:
        raise NotResumable(f"{run.name} has just been resumed by somebody else.") from None
    return attempt


def dispatch_ready() -> int:
    """Go through the queue in order and start every attempt whose resources are free and not reserved. Return how many
    started."""
    started = 0
    capacity: Capacity | None = None
    for attempt in queueing.waiting().select_related("run__owner", "run__group"):
        capacity = capacity or Capacity.read()
        try:
            result = _start_somewhere(attempt, capacity)
        except ContractError as error:
            _give_up(attempt, error)
            continue
        if isinstance(result, Shortage):
            assignment.give_way(result.gives_way)
            _tell(attempt, result)
        else:
            started += result
    return started


@receiver(limits_raised)
def start_queued_runs(**signal: Any) -> None:
    dispatch_ready()


def send_launch(attempt: Attempt, now: datetime | None = None) -> bool:
    """Send the launch message again. Of two senders only one does; without a broker the tick retries."""
    now = now or timezone.now()
    try:
        spec = attempt_spec(attempt)
    except ContractError as error:
        _give_up(attempt, error)
        return False
    unclaimed = Attempt.objects.filter(pk=attempt.pk, status=RunStatus.STARTING, claimed_at=None)
    sent = attempt.launches_sent
    if not unclaimed.filter(launches_sent=sent).update(launches_sent=sent + 1, launch_sent_at=now):
        return False
    arguments = [to_dict(spec), attempt_token(attempt.pk)]
    try:
        host_commands.send(spec.placement.host, Task.LAUNCH_RUN, arguments)
    except host_commands.BrokerDown as error:
        log.warning("launch of %s was not sent: %s", attempt.pk, error)
        unclaimed.filter(launches_sent=sent + 1).update(launches_sent=sent, launch_sent_at=None)
        return False
    return True


def attempt_spec(attempt: Attempt) -> AttemptSpec:
    """The content of spec.json, which the launcher writes."""
    return AttemptSpec(
        attempt_id=attempt.pk,
        number=attempt.number,
        first_seq=attempt.first_seq or 1,
        run=spec_of(attempt.run),
        placement=from_dict(Placement, attempt.placement),
        resume_from=attempt.resume_from or None,
    )


def _queue(
    run: Run,
    *,
    number: int,
    actor: str,
    kind: str,
    host: Host | None,
    priority: int,
    resume_from: str = "",
    resume_step: int = 0,
    data: Mapping[str, int] | None = None,
) -> Attempt:
    attempt = Attempt.objects.create(
        id=f"{run.pk}-{number}",
        run=run,
        number=number,
        host=host,
        priority=priority,
        resume_from=resume_from,
        resume_step=resume_step,
    )
    about = {"attempt": number, "step": resume_step, **(data or {})}
    RunEvent.objects.create(run=run, attempt=attempt, at=timezone.now(), kind=kind, actor=actor, data=about)
    return attempt


def _start_somewhere(attempt: Attempt, capacity: Capacity) -> Shortage | bool:
    """What the attempt waits for, or whether this call started it (another dispatcher or a cancellation may be
    first)."""
    over = capacity.over_limit(attempt.run)
    if over is not None:
        return over
    for _ in range(TRIES):
        result = capacity.find_for(attempt)
        if isinstance(result, Shortage):
            return result
        try:
            started = _start(attempt, *result)
        except limits.OverLimit as error:
            return Shortage(str(error))
        except IntegrityError:
            # Another dispatcher took one of the resources first.
            attempt.refresh_from_db(fields=UNDONE)
            capacity.read_again()
            continue
        if started:
            capacity.take(*result, attempt.run)
        else:
            capacity.read_again()
        return started
    return Shortage("waits for its turn")


def _start(attempt: Attempt, host: Host, placement: Placement) -> bool:
    """Write the leases, STARTING and the seq range in one transaction; send the message on commit. False: it no longer
    waits."""
    spec, servers = spec_of(attempt.run), None
    if warm.wanted(spec) and placement.warm is None:
        placement, servers = warm.split(placement, spec, f"{new_run_id()}-1")
    with transaction.atomic():
        limits.claim_start(attempt.run)
        first = _first_seq(attempt)
        placement = spending.placed(attempt, host, placement)
        facts = {"host": host, "placement": to_dict(placement), "first_seq": first, "last_seq": first - 1}
        if not move(attempt, RunStatus.STARTING, reason="dispatched", actor="dispatcher", facts=facts):
            return False
        leasing.take(attempt, host, placement)
        if servers is not None:
            server = assignment.begin(attempt, host, spec, servers)
            transaction.on_commit(lambda: send_launch(server), robust=True)
        elif placement.warm:
            assignment.attach(attempt, placement.warm.attempt_id)
        if not Host.objects.filter(pk=host.pk).exists():
            # It has just left; a host that leaves locks its row, which leases refer to.
            raise IntegrityError(f"{host.name} has left.")
        transaction.on_commit(lambda: send_launch(attempt), robust=True)
    return True


def _give_up(attempt: Attempt, error: ContractError) -> None:
    """End an unstarted attempt whose spec the contract can no longer read (after a downgrade), so that it doesn't block
    others."""
    log.error("%s can't be launched: %s", attempt.pk, error)
    detail, unclaimed = f"The run's spec can't be read: {error}", Q(claimed_at=None)
    with transaction.atomic():
        reason, actor = EndReason.LAUNCH_FAILED, "dispatcher"
        if move(attempt, RunStatus.FAILED, reason=reason, actor=actor, detail=detail, only_if=unclaimed):
            leasing.settle(attempt, None, by=actor, proved=True)
            assignment.let_go(attempt, proved=True)


def _tell(attempt: Attempt, shortage: Shortage) -> None:
    """Store on the attempt what it waits for, if that has changed."""
    hold = shortage.hold
    says = {
        "waits_for": shortage.text[:200],
        "waits_how": hold.how if hold else "",
        "waits_on_id": hold.run_id if hold else None,
    }
    if any(getattr(attempt, name) != value for name, value in says.items()):
        Attempt.objects.filter(pk=attempt.pk, status=RunStatus.QUEUED).update(**says)


def _first_seq(attempt: Attempt) -> int:
    if attempt.number == 1:
        return 1
    last = Run.objects.values_list("last_seq", flat=True).get(pk=attempt.run_id)
    before = attempt.run.attempts.filter(number__lt=attempt.number, first_seq__isnull=False)
    ended = RunEvent.objects.filter(run=attempt.run_id, seq=last, kind=EventKind.ENDED)
    complete = not before.exists() or ended.exists()
    return last + 1 if complete else last + 1 + LATE_ROOM
