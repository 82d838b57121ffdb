"""Automatic resumes: after an end that the run itself did not cause, the tick queues the next attempt. A resume is
planned only once every process of the ended attempt is proved gone and its resources are free, never while one is in
quarantine. If a user resumes or archives the run first, or cancels the resume, that takes precedence. If a cluster
takes its machine back, this is not a failure of the run: a resume is planned even for runs without automatic resumes,
and isn't counted as long as each attempt makes progress."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.utils import timezone

from runs.engine import checkpoints
from runs.engine.checkpoints import Checkpoint
from runs.engine.models import Attempt, Lease, Run
from runs.engine.records import RunEvent
from runs.engine.scheduling import launching
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import readable_spec
from runs.engine.states import FINAL
from runs.engine.timeline import add_event
from workers.contract.run.spec import RecoverySpec
from workers.contract.wire.names import EndReason

log = logging.getLogger(__name__)

ACTOR = "recovery"
R = EndReason
REASONS = frozenset(
    {R.HOST_LOST, R.HOST_SHUTDOWN, R.HOST_PREEMPTED, R.PREEMPTED, R.SUPERVISOR_LOST}
    | {R.VLLM_EXITED, R.VLLM_HUNG, R.HUNG, R.CHECKPOINT_UNUSABLE}
)
MAX_PAUSE = timedelta(days=1)


def plan(attempt: Attempt, now: datetime | None = None) -> bool:
    """Plan the resume of an ended attempt, at most once, and return whether this call planned it. Call it in the
    transaction that released the attempt's leases."""
    if attempt.reason not in REASONS or attempt.stop_mode:
        return False
    if attempt.leases.filter(state__in=(Lease.HELD, Lease.QUARANTINED)).exists():
        return False
    run = Run.objects.filter(pk=attempt.run_id).first()
    if run is None:  # a person has deleted it since
        return False
    recovery, used_count = recovery_of(run), resumes_used(run)
    checkpoint = checkpoints.last(run)
    is_counted = not _made_progress(attempt, checkpoint)
    if (is_counted and used_count >= recovery.resumes) or (
        checkpoint is not None and not checkpoints.has_steps_after(run, checkpoint.step)
    ):
        return False
    if RunEvent.objects.filter(attempt=attempt, kind="resume_planned").exists():
        return False
    now = now or timezone.now()
    resumes_at = now + pause(recovery, used_count if is_counted else 0)
    is_latest = not run.attempts.filter(number__gt=attempt.number).exists()
    if not is_latest or not Attempt.objects.filter(pk=attempt.pk).update(resumes_at=resumes_at):
        return False
    data = {"resumes_at": resumes_at.isoformat(), "number": used_count + 1 if is_counted else 0, "of": recovery.resumes}
    RunEvent.objects.create(run=run, attempt=attempt, at=now, kind="resume_planned", actor=ACTOR, data=data)
    attempt.resumes_at = resumes_at
    return True


def plan_all(attempt_ids: Iterable[str]) -> None:
    """Plan the resumes of attempts whose resources have left quarantine."""
    for attempt in Attempt.objects.filter(pk__in=set(attempt_ids), status__in=FINAL):
        plan(attempt)


def resume_due(now: datetime) -> None:
    """Queue the planned resumes that are due. Concurrent ticks queue each only once."""
    for attempt in Attempt.objects.filter(resumes_at__lte=now).select_related("run__owner"):
        run = attempt.run
        if run.archived_at or run.deleted_at:
            _clear_planned(attempt)
            continue
        number = _number(run, attempt, checkpoints.last(run))
        try:
            launching.resume_planned(attempt, actor=ACTOR, number=number, total=recovery_of(run).resumes)
        except launching.NotResumable:
            _clear_planned(attempt)
        except QueueFull as error:
            log.info("%s is resumed later: %s", run.pk, error)


def cancel_planned(run: Run, by: str) -> bool:
    """Cancel a run's planned resume at a user's request. Return False if none is planned."""
    attempt = run.latest()
    with transaction.atomic():
        if not _clear_planned(attempt):
            return False
        add_event(attempt, "resume_called_off", by)
    return True


@dataclass(frozen=True)
class PlannedResume:
    at: datetime
    number: int
    """Number among the automatic resumes, or 0 if it isn't counted."""
    of: int
    step: int | None
    """The checkpoint's step; None if the run starts from the beginning."""


def planned_resume(run: Run, attempt: Attempt) -> PlannedResume | None:
    if attempt.resumes_at is None:
        return None
    checkpoint = checkpoints.last(run)
    step = checkpoint.step if checkpoint else None
    return PlannedResume(attempt.resumes_at, _number(run, attempt, checkpoint), recovery_of(run).resumes, step)


def pause(recovery: RecoverySpec, used_retries: int) -> timedelta:
    """Return the pause before the next resume, after `used_retries` earlier ones."""
    return min(timedelta(seconds=recovery.pause_s * 2.0 ** min(used_retries, 30)), MAX_PAUSE)


def recovery_of(run: Run) -> RecoverySpec:
    spec = readable_spec(run)
    return spec.recovery if spec else RecoverySpec()  # a spec of another version can't be launched anyway


def resumes_used(run: Run) -> int:
    return RunEvent.objects.filter(run=run, kind="resumed", data__has_key="automatic").count()


def _number(run: Run, attempt: Attempt, checkpoint: Checkpoint | None) -> int:
    """Return the number of the automatic resume after this attempt, or 0 if it isn't counted."""
    return 0 if _made_progress(attempt, checkpoint) else resumes_used(run) + 1


def _made_progress(attempt: Attempt, checkpoint: Checkpoint | None) -> bool:
    """Return whether an attempt ended because a cluster took its machine back, and either saved a later step than it
    started from or was never claimed. Of consecutive unclaimed attempts, only the first qualifies."""
    if attempt.reason != R.HOST_PREEMPTED:
        return False
    if attempt.claimed_at is None:
        previous_attempts = Attempt.objects.filter(run=attempt.run_id, number=attempt.number - 1)
        return not previous_attempts.filter(reason=R.HOST_PREEMPTED, claimed_at=None).exists()
    return (
        checkpoint is not None and checkpoint.event.attempt_id == attempt.pk and checkpoint.step > attempt.resume_step
    )


def _clear_planned(attempt: Attempt) -> bool:
    return bool(Attempt.objects.filter(pk=attempt.pk).exclude(resumes_at=None).update(resumes_at=None))
