"""The only way to change a status: a guarded UPDATE, its event in the same transaction, and a hint on commit."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from runs.engine import hints
from runs.engine.alerts import delivery as alerts
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.states import FINAL, RunStatus, final_status, previous_statuses
from workers.contract.wire.names import EndReason

CLEARED_WAIT = {"waits_for": "", "waits_how": "", "waits_on": None}


class WrongReason(ValueError):
    """A final status was requested with a reason that belongs to another status."""


def move(
    attempt: Attempt,
    to: RunStatus,
    *,
    reason: str,
    actor: str,
    detail: str = "",
    only_if: Q | None = None,
    facts: Mapping[str, Any] | None = None,
) -> bool:
    """Move an attempt to a status. Return False if another writer was first, so that nothing was written. `reason` is
    an EndReason for a final status, otherwise a few words. `only_if` is an additional condition, such as being
    unclaimed; `facts` are columns set together with the status. On success, `attempt` has the new values."""
    if to in FINAL and final_status(EndReason(reason)) != to:
        raise WrongReason(f"{reason} does not end a run as {to}.")
    moved_at = timezone.now()
    columns = {**(facts or {}), "status": to.value, **_status_columns(to, reason, detail, moved_at)}
    with transaction.atomic():
        # The row is locked first, so that the event names the actual previous status. It is unordered, because the
        # default order joins the run, whose row another writer may hold.
        row = Attempt.objects.select_for_update().filter(pk=attempt.pk).order_by()
        previous_status = row.values_list("status", flat=True).first()
        allowed_attempts = Attempt.objects.filter(pk=attempt.pk, status__in=previous_statuses(to))
        if not (allowed_attempts.filter(only_if) if only_if is not None else allowed_attempts).update(**columns):
            return False
        data = {"from": previous_status, "to": to.value, "reason": str(reason), "detail": detail}
        event = RunEvent.objects.create(
            run_id=attempt.run_id, attempt=attempt, at=moved_at, kind="status", actor=actor, data=data
        )
        if to in FINAL:
            alerts.notify(event)
        transaction.on_commit(lambda: hints.changed(attempt.run_id))
    for name, value in columns.items():
        setattr(attempt, name, value)
    return True


def _status_columns(to: RunStatus, reason: str, detail: str, at: datetime) -> dict[str, Any]:
    if to in FINAL:
        return {"reason": str(reason), "detail": detail, "ended_at": at, **CLEARED_WAIT}
    if to == RunStatus.STARTING:
        return {"dispatched_at": at, **CLEARED_WAIT}
    if to == RunStatus.RUNNING:
        return {"started_at": at}
    return {}
