"""Ends of attempts: the final status, the receipt, the leases, and a dispatch of the queue."""

from typing import Any

from django.db import transaction
from django.db.models import Q

from runs.engine.models import Attempt
from runs.engine.scheduling import dispatching, leasing, recovery
from runs.engine.states import ON_HOST, RunStatus, final_status, may_move
from runs.engine.transitions import move
from runs.engine.warm import lifecycle
from workers.contract.reports.lines import Receipt
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EndReason


def end(
    attempt: Attempt,
    reason: EndReason,
    *,
    actor: str,
    detail: str = "",
    receipt: Receipt | None = None,
    exit_codes: dict[str, int] | None = None,
    only_if: Q | None = None,
    proved_free: bool = False,
) -> bool:
    """End an attempt: write its final status, release or quarantine its leases, plan its resume and dispatch the queue.
    Return False if it had already ended or `only_if` didn't hold."""
    status = final_status(reason)
    facts: dict[str, Any] = {"receipt": to_dict(receipt) if receipt else None, "exit_codes": exit_codes or {}}
    with transaction.atomic():
        if not may_move(RunStatus(attempt.status), status):
            # A success whose RUNNING never arrived passes through STOPPING like any other.
            move(attempt, RunStatus.STOPPING, reason="ending", actor=actor, only_if=only_if)
        if not move(attempt, status, reason=reason, actor=actor, detail=detail, only_if=only_if, facts=facts):
            return False
        leasing.release_or_quarantine(attempt, receipt, by=actor, proved=proved_free)
        lifecycle.detach(attempt, proved=proved_free or (receipt is not None and receipt.free))
        recovery.plan(attempt)
        transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return True


def give_up(
    attempt: Attempt, by: str, *, detail: str = "", reason: EndReason = EndReason.HOST_LOST, proved: bool = False
) -> bool:
    """End an attempt whose host is lost, and return whether this call ended it. Its resources are quarantined unless it
    is `proved` that none of its processes is left, or nothing was started."""
    is_unclaimed = attempt.claimed_at is None
    return end(
        attempt,
        reason,
        actor=by,
        detail=detail or f"Given up by {by}.",
        only_if=Q(status__in=ON_HOST, claimed_at__isnull=is_unclaimed),
        proved_free=proved or is_unclaimed,
    )


def late_receipt(attempt: Attempt, receipt: Receipt, *, actor: str) -> None:
    """Store the receipt of an attempt that had ended without one (as when an operator marked its host as lost). If the
    receipt proves that the attempt's resources are free, release its leases."""
    Attempt.objects.filter(pk=attempt.pk, receipt__isnull=True).update(receipt=to_dict(receipt))
    if receipt.free:
        with transaction.atomic():
            leasing.release_or_quarantine(attempt, receipt, by=actor)
            recovery.plan(attempt)
            transaction.on_commit(dispatching.dispatch_ready, robust=True)
