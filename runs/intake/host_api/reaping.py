"""Handling of reports from reapers, which find a supervisor alive or hand over the remains of a dead one."""

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Q

from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.scheduling import ending
from runs.engine.states import FINAL
from runs.engine.timeline import add_event
from runs.intake.host_api import ingest
from workers.contract.reports.lines import OutboxLine, Receipt
from workers.contract.wire.names import EndReason, EventKind

ACTOR = "reaper"
MAX_LAUNCHES = 3
_ENDS = {"completed": EndReason.COMPLETED, "done": EndReason.COMPLETED, "stopped": EndReason.STOPPED_BY_USER}
"""End that a trainer reported -> the end reason if its supervisor is gone."""


def reaped(
    attempt: Attempt,
    *,
    lock_held: bool,
    receipt: Receipt | None,
    lines: Sequence[OutboxLine],
    detail: str,
    boot_id: str = "",
) -> None:
    """Ingest the rest of the outbox, then end the attempt unless its supervisor still holds the lock. `boot_id` is the
    host's current one, which the host may not have announced yet."""
    if lines:
        ingest.accept(attempt, lines, live=False)
    attempt.refresh_from_db()
    is_final = attempt.status in FINAL
    if not is_final or (attempt.reason == EndReason.HOST_LOST and not lock_held):
        _record_report(attempt, lock_held, detail)
    if is_final:
        if receipt is not None and not lock_held:
            ending.late_receipt(attempt, receipt, actor=ACTOR)
        return
    if lock_held:
        return
    if attempt.claimed_at is None:
        # Nothing starts before a claim. The tick sends another launch unless this was the last one.
        if attempt.launches_sent >= MAX_LAUNCHES:
            reason = EndReason.CANCELLED if attempt.stop_mode else EndReason.LAUNCH_FAILED
            ending.end(attempt, reason, actor=ACTOR, detail=detail, only_if=Q(claimed_at=None), proved_free=True)
        return
    reason, explanation = _end_of(attempt, boot_id)
    ending.end(attempt, reason, actor=ACTOR, detail=f"{explanation} {detail}".strip(), receipt=receipt)


def _end_of(attempt: Attempt, boot_id: str) -> tuple[EndReason, str]:
    """Return the end reason, with details. A decision that was made before the supervisor died still applies."""
    if has_rebooted(attempt, boot_id):
        return EndReason.HOST_LOST, ""
    events = RunEvent.objects.filter(attempt=attempt)
    phase = events.filter(kind=EventKind.PHASE, data__has_key="reason").order_by("-id").first()
    if phase is not None and phase.data["reason"] in set(EndReason):
        reason = EndReason(phase.data["reason"])
        return reason, str(phase.data.get("detail") or "").removeprefix(reason).strip()
    limit = events.filter(kind=EventKind.LIMIT).order_by("-id").first()
    trained_event = events.filter(kind=EventKind.TRAINED).order_by("-id").first()
    has_saved = trained_event is not None and trained_event.data.get("how") in _ENDS
    if limit is not None and limit.data.get("reason") in set(EndReason) and (trained_event is None or has_saved):
        text = str(limit.data["text"])
        return EndReason(limit.data["reason"]), text if has_saved else f"{text} It may not have saved:"
    if trained_event is not None and has_saved:
        return _ENDS[trained_event.data["how"]], "The trainer had reported its end."
    if events.filter(kind=EventKind.STOP_SEEN).exists():
        # An immediate stop records its reason, so this stop was waiting for the trainer to save.
        return EndReason.STOPPED_BY_USER, "It may not have saved:"
    return EndReason.SUPERVISOR_LOST, ""


def _record_report(attempt: Attempt, lock_held: bool, detail: str) -> None:
    """Record a reaper's report. That a supervisor is alive is recorded only once per silence."""
    with transaction.atomic():
        locked_attempt = Attempt.objects.select_for_update().get(pk=attempt.pk)
        since = locked_attempt.last_seen_at or locked_attempt.created_at
        reports = RunEvent.objects.filter(attempt=locked_attempt, kind="reaped", at__gte=since, data__lock_held=True)
        if lock_held and reports.exists():
            return
        add_event(locked_attempt, "reaped", ACTOR, lock_held=lock_held, detail=detail)


def has_rebooted(attempt: Attempt, boot_id: str = "") -> bool:
    """Return whether the host has rebooted since the claim, according to `boot_id` or the last announced boot id."""
    announced_id = attempt.host.inventory.get("boot_id") if attempt.host else None
    return bool(attempt.boot_id) and any(
        current_id and current_id != attempt.boot_id for current_id in (boot_id, announced_id)
    )
