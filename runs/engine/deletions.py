"""Deletion of a saved model, or of all files of a run on its hosts: obstacles, consequences, the request to the host,
and the result that the host reports. The files are on the host, so a model is deleted only once its host says so or is
lost. The control plane itself removes the copy in the artifact store (runs.engine.artifacts.upkeep)."""

import logging
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.joining.credentials import revoked_since_dispatch
from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import attempt_token
from runs.engine import checkpoints
from runs.engine.artifacts import copies
from runs.engine.checkpoints import DELETED, DELETION_ASKED, NOT_DELETED, Checkpoint
from runs.engine.models import Attempt, Run
from runs.engine.queries import with_attempts
from runs.engine.records import RunEvent
from runs.engine.sentences import and_more, counted
from runs.engine.spec import readable_spec
from runs.engine.states import ACTIVE
from runs.engine.timeline import add_event
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import models_of
from workers.contract.wire.names import Task

log = logging.getLogger(__name__)

MAX_NAMED = 5
WHOLE_FOLDER = ""
"""Path used in events about an attempt's whole folder."""
REPEAT_AFTER = timedelta(hours=1)


class CheckpointNotDeletable(Exception):
    """The checkpoint can't be deleted; the message says why."""


def request(checkpoint: Checkpoint, user: User) -> None:
    """Ask the host to delete a checkpoint, even if it was asked before, since the message may have been lost. If the
    host is lost, record the checkpoint as deleted. Raises CheckpointNotDeletable if the checkpoint is in use or the
    host can't be asked."""
    event = checkpoint.event
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update(of=("self",)).select_related("host").get(pk=event.attempt_id)
        current_checkpoint = checkpoints.find(checkpoint.run, str(event.pk))
        if current_checkpoint is None or current_checkpoint.removed:
            return
        if problems := list(obstacles(current_checkpoint)):
            raise CheckpointNotDeletable(" ".join(problems))
        host = attempt.host
        if host is None or is_lost(attempt):
            copies.schedule_removal(current_checkpoint)
            add_event(attempt, DELETED, user.get_username(), path=event.data["path"], left_on=str(host or ""))
            return
        if not host.is_fresh(timezone.now()) and not current_checkpoint.in_store:
            raise CheckpointNotDeletable(
                f"{host} is unreachable, and only {host} can delete the files. Try again later."
            )
        if not current_checkpoint.is_being_deleted:
            add_event(attempt, DELETION_ASKED, user.get_username(), path=event.data["path"])
    try:
        host_commands.send(host.name, Task.DELETE_MODEL, [checkpoint.folder, attempt_token(attempt.pk)])
    except host_commands.BrokerDown as error:
        log.warning("the deletion of %s was not sent: %s", checkpoint.folder, error)
        record_result(attempt, event.data["path"], f"The request could not be sent to {host.name}.", actor="ingest")
        raise CheckpointNotDeletable(f"The request could not be sent to {host.name}. Try again later.") from error
    copies.schedule_removal(current_checkpoint)


def request_folder_deletion(attempt: Attempt, now: datetime) -> None:
    """Ask the host to delete the whole folder of an ended attempt; ask again after REPEAT_AFTER without a reply."""
    host, last_event = attempt.host, _deletion_events(attempt, WHOLE_FOLDER).last()
    if host is None or not folder_obstacle(attempt, now) or not host.is_fresh(now):
        return
    if last_event is not None and last_event.at > now - REPEAT_AFTER:
        return
    arguments = [f"{attempt.run_id}/{attempt.number}", attempt_token(attempt.pk)]
    try:
        host_commands.send(host.name, Task.DELETE_MODEL, arguments)
    except host_commands.BrokerDown as error:
        log.warning("the deletion of %s was not sent: %s", attempt.pk, error)
        return
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        add_event(attempt, DELETION_ASKED, "trash", path=WHOLE_FOLDER)


def folder_obstacle(attempt: Attempt, now: datetime) -> str:
    """Describe what the deletion of an ended attempt's whole folder is waiting for. Return "" if the folder was
    deleted, never existed, or is left on a lost host."""
    host, last_event = attempt.host, _deletion_events(attempt, WHOLE_FOLDER).last()
    if host is None or attempt.dispatched_at is None or is_lost(attempt) or (last_event and last_event.kind == DELETED):
        return ""
    if not host.is_fresh(now):
        return f"{host} is unreachable. It will delete the run's files once it is back."
    if last_event is not None and last_event.kind == NOT_DELETED:
        return f"{host} couldn't delete the run's files: {last_event.data.get('problem')}"
    return f"{host} is deleting the run's files."


def needed_by(run: Run, *, jobs: Collection[str]) -> list[str]:
    """Describe, in one sentence each, the run's active `jobs` and the active runs that need one of its checkpoints."""
    return [
        f"{_describe(user)} is {user.latest().status} and needs one of its checkpoints. Stop it, or wait until it ends."
        for user in _active_runs(run)
        if user.pk in jobs or any(folder.startswith(f"{run.pk}/") for folder in _folders(user))
    ]


def is_lost(attempt: Attempt) -> bool:
    """Return whether the attempt's host was removed on the Hardware page, or revoked since the dispatch."""
    is_removed = attempt.host is not None and attempt.host.removed_at is not None
    return is_removed or Attempt.objects.filter(revoked_since_dispatch(), pk=attempt.pk).exists()


def record_result(attempt: Attempt, path: str, problem: str, *, actor: str = "launcher") -> bool:
    """Record, once, the result that a host reports for a deletion. Return False if nobody requested the deletion."""
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        last_event = _deletion_events(attempt, path).last()
        if last_event is None:
            return False
        if last_event.kind != DELETED and not (problem and last_event.kind == NOT_DELETED):
            kind = NOT_DELETED if problem else DELETED
            add_event(attempt, kind, actor, path=path, **({"problem": problem} if problem else {}))
    return True


def awaits_result(attempt: Attempt) -> bool:
    """Return whether the host has yet to report the result of deleting the attempt's folder or a checkpoint."""
    return DELETION_ASKED in {event.data["path"]: event.kind for event in _deletion_events(attempt)}.values()


def _deletion_events(attempt: Attempt, path: str | None = None) -> QuerySet[RunEvent]:
    """List the events about deletions of an attempt's folders, or only of the folder at `path`, oldest first."""
    events = RunEvent.objects.filter(attempt=attempt, kind__in=(DELETION_ASKED, DELETED, NOT_DELETED)).order_by("id")
    return events if path is None else events.filter(data__path=path)


def obstacles(checkpoint: Checkpoint) -> Iterator[str]:
    """Explain why the checkpoint can't be deleted now, in one sentence per obstacle."""
    run = checkpoint.run
    last_attempt = run.latest()
    if last_attempt.status in ACTIVE:
        yield f"Its run is {last_attempt.status}. Stop the run, or wait until it ends."
    elif last_attempt.resumes_at is not None:
        yield "Its run will be resumed automatically. Cancel the resume first."
    for user in _active_runs(run):
        if checkpoint.folder in _folders(user):
            yield f"{_describe(user)} is {user.latest().status} and needs this model. Stop it, or wait until it ends."


def consequences(checkpoint: Checkpoint) -> Iterator[str]:
    """Describe what remains of the files, which ended runs refer to the checkpoint, and what becomes impossible."""
    yield from _about_files(checkpoint)
    by_path = Q(spec__model__path=checkpoint.path) if checkpoint.path else Q()
    referrers = Run.objects.filter(Q(spec__start_from=checkpoint.folder) | by_path).exclude(pk=checkpoint.run.pk)
    ended_runs = [run for run in with_attempts(referrers.order_by("created_at")) if run.latest().status not in ACTIVE]
    evaluations = [run for run in ended_runs if run.kind == EVALUATION]
    jobs = [run for run in ended_runs if run.kind in KINDS]
    started_runs = [run for run in ended_runs if run not in evaluations and run not in jobs]
    if started_runs:
        names = and_more([run.name for run in started_runs[:MAX_NAMED]], len(started_runs))
        yield f"{counted(len(started_runs), 'run')} started from it and can't be repeated from it: {names}."
    if evaluations:
        yield f"{counted(len(evaluations), 'evaluation')} of it can't be repeated; the completions are kept."
    if jobs:
        yield f"{counted(len(jobs), 'job')} on it can't be repeated; the results are kept."
    if not checkpoint.run.trains:
        return
    other_checkpoints = (row for row in checkpoints.of_run(checkpoint.run) if row.event != checkpoint.event)
    newest_checkpoint = next((row for row in other_checkpoints if row.usable), None)
    if newest_checkpoint is None:
        yield "It is the only remaining checkpoint of its run, which can then only restart from step 0."
    else:
        yield (
            f"Its run can no longer be resumed from step {checkpoint.step}; the newest remaining checkpoint is from "
            f"step {newest_checkpoint.step}."
        )


def _about_files(checkpoint: Checkpoint) -> Iterator[str]:
    attempt = checkpoint.event.attempt
    if attempt.host is None or is_lost(attempt):
        yield f"{attempt.host or 'Its host'} is gone, so files that are still on its disk stay there."
    elif not attempt.host.is_fresh(timezone.now()):
        yield f"{attempt.host} is unreachable. It will delete the files once it is back."
    if checkpoint.in_store:
        yield "Its copy in the artifact store is removed as well."


def _active_runs(run: Run) -> QuerySet[Run]:
    return with_attempts(Run.objects.filter(attempts__status__in=ACTIVE).exclude(pk=run.pk).distinct())


def _folders(run: Run) -> list[str]:
    """List the checkpoint folders that a run needs: to start from, as its model, or as reward models."""
    spec = readable_spec(run)
    paths = [model.path for model in models_of(spec)] if spec else [str(run.spec["model"]["path"])]
    return [str(run.spec.get("start_from") or ""), *map(checkpoints.folder_in, paths)]


def _describe(run: Run) -> str:
    return f"The {'job' if run.kind in KINDS else 'run'} “{run.name}”"
