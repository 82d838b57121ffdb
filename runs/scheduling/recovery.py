"""Automatic resumes: after an end that the run itself did not cause, the tick queues the next attempt.

A resume is planned only once everything of the ended attempt is proved gone and its resources are free; never while one
is in quarantine. Whoever resumes or archives the run meanwhile, or calls the resume off, wins.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from runs import checkpoints, hints
from runs.models import Attempt, Lease, Run, RunEvent
from runs.scheduling import launching
from runs.scheduling.limits import QueueFull
from runs.spec import spec_of
from runs.states import FINAL, EndReason
from workers.contract import ContractError, RecoverySpec

log = logging.getLogger(__name__)

ACTOR = "recovery"
R = EndReason
REASONS = frozenset(
    {R.HOST_LOST, R.HOST_SHUTDOWN, R.HOST_PREEMPTED, R.PREEMPTED, R.SUPERVISOR_LOST}
    | {R.VLLM_EXITED, R.VLLM_HUNG, R.HUNG, R.CHECKPOINT_UNUSABLE}
)
LONGEST_PAUSE = timedelta(days=1)


def plan(attempt: Attempt, now: datetime | None = None) -> bool:
    """Plan the resume of an ended attempt, inside the transaction that settled its leases; at most once an attempt."""
    if attempt.reason not in REASONS or attempt.stop_mode:
        return False
    if attempt.leases.filter(state__in=(Lease.HELD, Lease.QUARANTINED)).exists():
        return False
    run = Run.objects.get(pk=attempt.run_id)
    recovery, used = recovery_of(run), resumes_used(run)
    saved = checkpoints.last(run)
    if used >= recovery.resumes or (saved is not None and not checkpoints.trains_on(run, saved.step)):
        return False
    if RunEvent.objects.filter(attempt=attempt, kind="resume_planned").exists():
        return False
    now = now or timezone.now()
    resumes_at = now + pause(recovery, used)
    latest = not run.attempts.filter(number__gt=attempt.number).exists()
    if not latest or not Attempt.objects.filter(pk=attempt.pk).update(resumes_at=resumes_at):
        return False
    data = {"resumes_at": resumes_at.isoformat(), "number": used + 1, "of": recovery.resumes}
    RunEvent.objects.create(run=run, attempt=attempt, at=now, kind="resume_planned", actor=ACTOR, data=data)
    attempt.resumes_at = resumes_at
    return True


def plan_all(attempt_ids: Iterable[str]) -> None:
    """Plan the resumes of attempts whose resources have left quarantine."""
    for attempt in Attempt.objects.filter(pk__in=set(attempt_ids), status__in=FINAL):
        plan(attempt)


def resume_due(now: datetime) -> None:
    """Queue the attempts whose time has come. Two ticks at once queue one."""
    for attempt in Attempt.objects.filter(resumes_at__lte=now).select_related("run__owner"):
        run = attempt.run
        if run.archived_at:
            _forget(attempt)
            continue
        number = resumes_used(run) + 1
        try:
            launching.resume_planned(attempt, actor=ACTOR, number=number, of=recovery_of(run).resumes)
        except launching.NotResumable:
            _forget(attempt)
        except QueueFull as error:
            log.info("%s is resumed later: %s", run.pk, error)


def call_off(run: Run, by: str) -> bool:
    """Cancel the planned resume, at a user's request. False: none is planned."""
    attempt = run.latest()
    with transaction.atomic():
        if not _forget(attempt):
            return False
        RunEvent.objects.create(
            run=run, attempt=attempt, at=timezone.now(), kind="resume_called_off", actor=by, data={}
        )
        transaction.on_commit(lambda: hints.changed(run.pk))
    return True


@dataclass(frozen=True)
class PlannedResume:
    at: datetime
    number: int
    of: int
    step: int | None
    """Of the checkpoint; None: it starts again."""


def planned(run: Run, attempt: Attempt) -> PlannedResume | None:
    if attempt.resumes_at is None:
        return None
    saved = checkpoints.last(run)
    step = saved.step if saved else None
    return PlannedResume(attempt.resumes_at, resumes_used(run) + 1, recovery_of(run).resumes, step)


def pause(recovery: RecoverySpec, used: int) -> timedelta:
    """The pause before the next resume, after `used` earlier ones."""
    return min(timedelta(seconds=recovery.pause_s * 2.0 ** min(used, 30)), LONGEST_PAUSE)


def recovery_of(run: Run) -> RecoverySpec:
    try:
        return spec_of(run).recovery
    except ContractError:
        return RecoverySpec()  # a spec of another version can't be launched anyway


def resumes_used(run: Run) -> int:
    return RunEvent.objects.filter(run=run, kind="resumed", data__has_key="automatic").count()


def _forget(attempt: Attempt) -> bool:
    return bool(Attempt.objects.filter(pk=attempt.pk).exclude(resumes_at=None).update(resumes_at=None))
