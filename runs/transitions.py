"""The only door to a status: a guarded UPDATE, its event in the same transaction, and word of it on commit."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from runs import hints
from runs.alerts import delivery as alerts
from runs.models import Attempt, RunEvent
from runs.states import FINAL, EndReason, RunStatus, final_status, sources

WAITS_NO_MORE = {"waits_for": "", "waits_how": "", "waits_on": None}


class WrongReason(ValueError):
    """A final status was asked for with a reason that means another one."""


def move(
    attempt: Attempt,
    to: RunStatus,
    *,
    reason: str,
    actor: str,
    detail: str = "",
    only_if: Q | None = None,
    facts: Mapping[str, Any] | None = None,
    at: datetime | None = None,
) -> bool:
    """Move an attempt to a status; False means that the race was lost and nothing was written.

    `reason` is an EndReason for a final status, a few words otherwise. `only_if` narrows the guard further (`unclaimed
    only`), `facts` are columns that become true with the status. `attempt` holds the new values afterwards.
    """
    if to in FINAL and final_status(EndReason(reason)) != to:
        raise WrongReason(f"{reason} does not end a run as {to}.")
    at = at or timezone.now()
    columns = {**(facts or {}), "status": to.value, **_stamps(to, reason, detail, at)}
    with transaction.atomic():
        # The row is locked first, so that the event names the status that was really left. Without an order: the usual
        # one joins the run, whose row a writer of its figures may have.
        held = Attempt.objects.select_for_update().filter(pk=attempt.pk).order_by()
        old = held.values_list("status", flat=True).first()
        allowed = Attempt.objects.filter(pk=attempt.pk, status__in=sources(to))
        if not (allowed.filter(only_if) if only_if is not None else allowed).update(**columns):
            return False
        data = {"from": old, "to": to.value, "reason": str(reason), "detail": detail}
        event = RunEvent.objects.create(
            run_id=attempt.run_id, attempt=attempt, at=at, kind="status", actor=actor, data=data
        )
        if to in FINAL:
            alerts.notify(event)
        transaction.on_commit(lambda: hints.changed(attempt.run_id))
    for name, value in columns.items():
        setattr(attempt, name, value)
    return True


def _stamps(to: RunStatus, reason: str, detail: str, at: datetime) -> dict[str, Any]:
    """What a status implies for the attempt's own columns."""
    if to in FINAL:
        return {"reason": str(reason), "detail": detail, "ended_at": at, **WAITS_NO_MORE}
    if to == RunStatus.STARTING:
        return {"dispatched_at": at, **WAITS_NO_MORE}
    if to == RunStatus.RUNNING:
        return {"started_at": at}
    return {}
