"""Launches and resumes, from a frozen spec to a queued attempt, with the checks before them."""

import logging
from dataclasses import replace

from django.db import IntegrityError, transaction
from django.utils import timezone

from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import User
from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.gateway import endpoint
from runs.engine.models import Attempt, Priority, Run, new_run_id
from runs.engine.scheduling import checkpoint_hosts, dispatching, gpu_queue, leasing, limits, spending
from runs.engine.spec import LaunchRequest, freeze, mixed_versions
from runs.engine.states import FINAL, RunStatus
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError, to_dict

log = logging.getLogger(__name__)

TRAINING_KINDS = frozenset({"train", "trial"})
"""Kinds of runs that get the requested priority. Others come last in the queue unless a user raises theirs."""


class NotResumable(Exception):
    """The run can't be resumed; the message says why."""


def submit(request: LaunchRequest, *, user: User, dispatch: bool = True) -> Run:
    """Freeze the spec and queue the run's first attempt, which is dispatched on commit if its resources are free. With
    `dispatch=False`, the caller submits several runs and dispatches once. Raises QueueFull if the owner may not queue
    more runs, and ContractError if the request is invalid or the user may not launch it."""
    run_id = new_run_id()
    spec = _frozen(request, user, run_id)
    dataset_version, reward_version, profile = request.chosen_rows()
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


def refusal(request: LaunchRequest, user: User) -> str:
    """Return why `submit` would refuse a request, whatever the queue, or "" if it would accept it."""
    try:
        _frozen(request, user, "")
    except ContractError as error:
        return str(error)
    return ""


def _frozen(request: LaunchRequest, user: User, run_id: str) -> RunSpec:
    if not endpoint.may_open(user, request.episodes):
        raise ContractError(endpoint.ADMIN_ONLY)
    return freeze(request, run_id)


def submit_job(source: Run, spec: RunSpec, *, host: Host | None, user: User) -> Run:
    """Queue a job on a model of `source`, behind all training runs. `spec` is complete except for its run id. Raises
    QueueFull if the user may not queue more runs."""
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
        _lock_sources(run, spec)
        run.save(force_insert=True)
        actor = run.owner.get_username()
        gpu_queue.enqueue(run, number=1, actor=actor, kind="submitted", host=run.host, priority=priority)
        if dispatch:
            transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return run


def _lock_sources(run: Run, spec: RunSpec) -> None:
    """Lock the datasets, and the run whose model is used, so that they can't be deleted concurrently. Raises
    ContractError if one of them has been deleted."""
    for data, version in zip(spec.data.every_source, mixed_versions(run), strict=True):
        dataset = Dataset.objects.select_for_update(no_key=True).filter(pk=version.dataset_id) if version else ()
        if not dataset:
            raise ContractError(f"the dataset {data.name} was deleted")
    if run.source_id and not Run.objects.select_for_update(no_key=True).filter(pk=run.source_id).values_list("pk"):
        raise ContractError("the run with this model was deleted")


def resume(run: Run, user: User, checkpoint: Checkpoint | None = None) -> Attempt:
    """Queue a new attempt of an ended run from this checkpoint or its last one, on a host that can use it. If the run
    has no checkpoint, it starts from the beginning. Raises NotResumable, or QueueFull if the run's owner may not queue
    more runs."""
    return _resume(run, user.get_username(), {}, checkpoint=checkpoint)


def resume_planned(attempt: Attempt, *, actor: str, number: int, total: int) -> Attempt:
    """Queue the resume that was planned at the end of `attempt`, which must still be the run's last attempt. `number`
    is its number among the `total` automatic resumes that are allowed, or 0 if this resume isn't counted."""
    data = {"automatic": number, "of": total} if number else {}
    return _resume(attempt.run, actor, data, planned_on=attempt)


def move_resumes() -> None:
    """Move queued resumes whose host can't take launches to another host that can use the checkpoint."""
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
        raise NotResumable("Jobs can't be resumed. Start the job again on its model's page.")
    try:
        with transaction.atomic():
            limits.claim_room(run.owner_id)
            # Writers of events lock the run's latest attempt, too.
            last = run.attempts.select_for_update(of=("self", "run")).select_related("run").order_by("-number")[0]
            if last.status not in FINAL:
                raise NotResumable(f"{run.name} is still {last.status}.")
            if last.run.deleted_at:
                raise NotResumable(f"{run.name} was deleted. Restore it first.")
            if planned_on is not None and (last.pk != planned_on.pk or last.resumes_at is None):
                raise NotResumable(f"{run.name} no longer has a planned resume.")
            if problem := spending.exhausted_limit(run, last.number + 1):
                raise NotResumable(problem)
            Attempt.objects.filter(pk=last.pk).update(resumes_at=None)
            checkpoint = checkpoint or checkpoint_hosts.resume_point(run)
            attempt = gpu_queue.enqueue(
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
            transaction.on_commit(dispatching.dispatch_ready, robust=True)
    except IntegrityError:
        raise NotResumable(f"{run.name} has just been resumed by somebody else.") from None
    return attempt
