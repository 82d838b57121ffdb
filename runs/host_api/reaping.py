"""What a reaper found: a supervisor that lives, or what a dead one left behind."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from runs.host_api import ingest
from runs.models import Attempt, RunEvent
from runs.scheduling import ending
from runs.states import FINAL, EndReason
from workers.contract import EventKind, OutboxLine, Receipt

ACTOR = "reaper"
MAX_LAUNCHES = 3


def reaped(
    attempt: Attempt, *, lock_held: bool, receipt: Receipt | None, lines: Sequence[OutboxLine], detail: str
) -> None:
    """Take in what was left in the outbox, then end the attempt, unless its supervisor holds its lock."""
    if lines:
        ingest.accept(attempt, lines, seen=False)
    attempt.refresh_from_db()
    final = attempt.status in FINAL
    if not final or (attempt.reason == EndReason.HOST_LOST and not lock_held):
        _note(attempt, lock_held, detail)
    if final:
        if receipt is not None and not lock_held:
            ending.late_receipt(attempt, receipt, actor=ACTOR)
        return
    if lock_held:
        return
    if attempt.claimed_at is None:
        # Nothing starts before a claim, so nothing was started. Until the last launch the tick may send another.
        if attempt.launches_sent >= MAX_LAUNCHES:
            reason = EndReason.CANCELLED if attempt.stop_mode else EndReason.LAUNCH_FAILED
            ending.end(attempt, reason, actor=ACTOR, detail=detail, only_if=Q(claimed_at=None), proved_free=True)
        return
    reason, said = _end_of(attempt)
    ending.end(attempt, reason, actor=ACTOR, detail=f"{said} {detail}".strip(), receipt=receipt)


def _end_of(attempt: Attempt) -> tuple[EndReason, str]:
    """Why it ended, with words for the detail: a supervisor that died later doesn't change what it had taken on."""
    if has_rebooted(attempt):
        return EndReason.HOST_LOST, ""
    told = RunEvent.objects.filter(attempt=attempt)
    phase = told.filter(kind=EventKind.PHASE, data__has_key="reason").order_by("-id").first()
    if phase is not None and phase.data["reason"] in set(EndReason):
        reason = EndReason(phase.data["reason"])
        return reason, str(phase.data.get("detail") or "").removeprefix(reason).strip()
    if told.filter(kind=EventKind.STOP_SEEN).exists():
        # A stop that ends things at once writes its reason down with it: this one waited for the trainer to save.
        return EndReason.STOPPED_BY_USER, "It may not have saved:"
    return EndReason.SUPERVISOR_LOST, ""


def _note(attempt: Attempt, lock_held: bool, detail: str) -> None:
    """That the supervisor lives is said once for each silence, however often it is asked."""
    with transaction.atomic():
        held = Attempt.objects.select_for_update().get(pk=attempt.pk)
        since = held.last_seen_at or held.created_at
        said = RunEvent.objects.filter(attempt=held, kind="reaped", at__gte=since, data__lock_held=True)
        if lock_held and said.exists():
            return
        data = {"lock_held": lock_held, "detail": detail}
        RunEvent.objects.create(
            run_id=held.run_id, attempt=held, at=timezone.now(), kind="reaped", actor=ACTOR, data=data
        )


def has_rebooted(attempt: Attempt) -> bool:
    """The host has announced itself with another boot id than the one that claimed."""
    now = attempt.host.inventory.get("boot_id") if attempt.host else None
    return bool(now and attempt.boot_id and now != attempt.boot_id)
