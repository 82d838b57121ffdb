"""Deleting a saved model, or all that a run has on its hosts: what refers to it, what forbids it, the request to its
host, and the host's answer.

The files are on the host, so only its answer makes a model a deleted one, unless the host is gone for good. The copy in
the artifact store is removed by the control plane (runs.engine.artifacts.upkeep).
"""

from __future__ import annotations

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
from runs.engine.spec import spec_of
from runs.engine.states import ACTIVE
from runs.engine.timeline import add_event
from workers.contract.run.evaluation import EVALUATION
from workers.contract.run.jobs import KINDS
from workers.contract.run.spec import models_of
from workers.contract.wire.documents import ContractError
from workers.contract.wire.names import Task

log = logging.getLogger(__name__)

MOST_NAMED = 5
WHOLE = ""
"""In place of a checkpoint's path: the whole folder of an attempt."""
ASK_AGAIN = timedelta(hours=1)


class CheckpointNotDeletable(Exception):
    """It stays; a sentence for people."""


def obstacles(checkpoint: Checkpoint) -> list[str]:
    """Why it can't be deleted now."""
    return list(_obstacles(checkpoint))


def consequences(checkpoint: Checkpoint) -> list[str]:
    """What refers to it, and what can't be done without it."""
    return list(_consequences(checkpoint))


def request(checkpoint: Checkpoint, user: User) -> None:
    """Ask the host to delete it. What was asked before is asked again, since a message may be lost.

    Raises NotDeletable.
    """
    event = checkpoint.event
    with transaction.atomic():
        attempt = Attempt.objects.select_for_update(of=("self",)).select_related("host").get(pk=event.attempt_id)
        current = checkpoints.find(checkpoint.run, str(event.pk))
        if current is None or current.removed:
            return
        if why := obstacles(current):
            raise CheckpointNotDeletable(" ".join(why))
        host = attempt.host
        if host is None or is_lost(attempt):
            copies.to_go(current)
            add_event(attempt, DELETED, user.get_username(), path=event.data["path"], left_on=str(host or ""))
            return
        if not host.is_fresh(timezone.now()) and not current.in_store:
            raise CheckpointNotDeletable(f"{host} is out of reach, and only it can delete the files. Try again later.")
        if not current.going:
            add_event(attempt, DELETION_ASKED, user.get_username(), path=event.data["path"])
    try:
        host_commands.send(host.name, Task.DELETE_MODEL, [checkpoint.folder, attempt_token(attempt.pk)])
    except host_commands.BrokerDown as error:
        log.warning("the deletion of %s was not sent: %s", checkpoint.folder, error)
        answered(attempt, event.data["path"], f"The message to {host.name} could not be sent.", actor="ingest")
        raise CheckpointNotDeletable("The message to its host could not be sent. Try again later.") from error
    copies.to_go(current)


def clear_away(attempt: Attempt, now: datetime) -> None:
    """Have the host delete the whole folder of an ended attempt, unless it has. If no answer comes, it is asked
    again."""
    host, last = attempt.host, _told(attempt, WHOLE).last()
    if host is None or not folder_waits(attempt, now) or not host.is_fresh(now):
        return
    if last is not None and last.at > now - ASK_AGAIN:
        return
    arguments = [f"{attempt.run_id}/{attempt.number}", attempt_token(attempt.pk)]
    try:
        host_commands.send(host.name, Task.DELETE_MODEL, arguments)
    except host_commands.BrokerDown as error:
        log.warning("the deletion of %s was not sent: %s", attempt.pk, error)
        return
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        add_event(attempt, DELETION_ASKED, "trash", path=WHOLE)


def folder_waits(attempt: Attempt, now: datetime) -> str:
    """What the deletion of an ended attempt's whole folder waits for; "": it is gone, there was none, or it stays on a
    host that is gone for good."""
    host, last = attempt.host, _told(attempt, WHOLE).last()
    if host is None or attempt.dispatched_at is None or is_lost(attempt) or (last and last.kind == DELETED):
        return ""
    if not host.is_fresh(now):
        return f"{host} is out of reach: it deletes the run's files when it is back."
    if last is not None and last.kind == NOT_DELETED:
        return f"{host} couldn't delete the run's files: {last.data.get('problem')}"
    return f"{host} deletes the run's files."


def needed_by(run: Run, *, jobs: Collection[str]) -> list[str]:
    """The active runs that need one of its checkpoints, and those of its jobs, in sentences."""
    return [
        f"{_named(other)} is {other.latest().status} and needs a checkpoint of it. Stop it, or wait for its end."
        for other in _active(run)
        if other.pk in jobs or any(folder.startswith(f"{run.pk}/") for folder in _folders(other))
    ]


def is_lost(attempt: Attempt) -> bool:
    """Whether its host is gone for good: taken off the Hardware page, or revoked since."""
    removed = attempt.host is not None and attempt.host.removed_at is not None
    return removed or Attempt.objects.filter(revoked_since_dispatch(), pk=attempt.pk).exists()


def answered(attempt: Attempt, path: str, problem: str, *, actor: str = "launcher") -> bool:
    """Store the host's answer; a repeated one changes nothing. False: nobody has asked."""
    with transaction.atomic():
        Attempt.objects.select_for_update().get(pk=attempt.pk)
        last = _told(attempt, path).last()
        if last is None:
            return False
        if last.kind != DELETED and not (problem and last.kind == NOT_DELETED):
            kind = NOT_DELETED if problem else DELETED
            add_event(attempt, kind, actor, path=path, **({"problem": problem} if problem else {}))
    return True


def is_asked(attempt: Attempt) -> bool:
    """Whether the host is still to answer for one of the attempt's checkpoints."""
    return DELETION_ASKED in {event.data["path"]: event.kind for event in _told(attempt)}.values()


def _told(attempt: Attempt, path: str | None = None) -> QuerySet[RunEvent]:
    """What was said of deletions of its folders, or of this one, in order."""
    told = RunEvent.objects.filter(attempt=attempt, kind__in=(DELETION_ASKED, DELETED, NOT_DELETED)).order_by("id")
    return told if path is None else told.filter(data__path=path)


def _obstacles(checkpoint: Checkpoint) -> Iterator[str]:
    run = checkpoint.run
    last = run.latest()
    if last.status in ACTIVE:
        yield f"Its run is {last.status}: wait for its end, or stop it."
    elif last.resumes_at is not None:
        yield "Its run is to be resumed by itself: call that off first."
    for other in _active(run):
        if _uses(other, checkpoint):
            yield f"{_named(other)} is {other.latest().status} and needs it. Stop it, or wait for its end."


def _consequences(checkpoint: Checkpoint) -> Iterator[str]:
    yield from _about_files(checkpoint)
    others = [run for run in _referring(checkpoint) if run.latest().status not in ACTIVE]
    evaluations = [run for run in others if run.kind == EVALUATION]
    jobs = [run for run in others if run.kind in KINDS]
    trained = [run for run in others if run not in evaluations and run not in jobs]
    if trained:
        names = and_more([run.name for run in trained[:MOST_NAMED]], len(trained))
        yield f"{counted(len(trained), 'run')} began with it and can't be repeated from it: {names}."
    if evaluations:
        yield f"{counted(len(evaluations), 'evaluation')} of it can't be repeated; the completions stay."
    if jobs:
        yield f"{counted(len(jobs), 'job')} on it can't be repeated; what was made stays."
    if not checkpoint.run.trains:
        return
    left = [each for each in checkpoints.of_run(checkpoint.run) if each.usable and each.event != checkpoint.event]
    if not left:
        yield "It is the last checkpoint of its run, which can then only start again from step 0."
    else:
        yield (
            f"Its run can no longer be resumed from step {checkpoint.step}; the newest checkpoint left is that of step "
            f"{left[0].step}."
        )


def _about_files(checkpoint: Checkpoint) -> Iterator[str]:
    attempt = checkpoint.event.attempt
    if attempt.host is None or is_lost(attempt):
        yield f"{attempt.host or 'Its host'} is gone: what is still on its disk stays there."
    elif not attempt.host.is_fresh(timezone.now()):
        yield f"{attempt.host} is out of reach: it deletes its files when it is back."
    if checkpoint.in_store:
        yield "Its copy in the artifact store is removed, too."


def _active(run: Run) -> QuerySet[Run]:
    return with_attempts(Run.objects.filter(attempts__status__in=ACTIVE).exclude(pk=run.pk).distinct())


def _referring(checkpoint: Checkpoint) -> QuerySet[Run]:
    by_path = Q(spec__model__path=checkpoint.path) if checkpoint.path else Q()
    runs = Run.objects.filter(Q(spec__start_from=checkpoint.folder) | by_path).exclude(pk=checkpoint.run.pk)
    return with_attempts(runs.order_by("created_at"))


def _uses(run: Run, checkpoint: Checkpoint) -> bool:
    return checkpoint.folder in _folders(run)


def _folders(run: Run) -> list[str]:
    """Where checkpoints would be that it needs: as what it starts with, as its model, or as a reward model."""
    try:
        paths = [model.path for model in models_of(spec_of(run))]
    except ContractError:
        paths = [str(run.spec["model"]["path"])]
    return [str(run.spec.get("start_from") or ""), *map(checkpoints.folder_in, paths)]


def _named(run: Run) -> str:
    return f"The {'job' if run.kind in KINDS else 'run'} “{run.name}”"
