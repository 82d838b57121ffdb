"""Stops: each request is one UPDATE, which the host learns of by a message or its next sync."""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from controlplane.catalogue.hardware import host_commands
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt
from runs.engine.scheduling import dispatching
from runs.engine.sentences import STOPS, counted
from runs.engine.states import ACTIVE, FINAL, RunStatus
from runs.engine.timeline import add_event
from runs.engine.transitions import move
from workers.contract.run import jobs
from workers.contract.wire.names import EndReason, StopMode, Task

log = logging.getLogger(__name__)


def request_stop(attempt: Attempt, mode: StopMode, user: User, *, dispatch: bool = True) -> bool:
    """Request a stop. `save` may be escalated to `now`, never back. Runs that don't train are stopped at once, except
    pushes to the hub, which undo their upload. Return False if the request changes nothing. With `dispatch=False`, the
    caller dispatches afterwards."""
    if not attempt.run.trains and not jobs.kind_of(attempt.run.kind).pushes:
        mode = StopMode.NOW
    now = timezone.now()
    is_weaker = Q(stop_mode="") | Q(stop_mode=StopMode.SAVE) if mode == StopMode.NOW else Q(stop_mode="")
    with transaction.atomic():
        updated_count = Attempt.objects.filter(is_weaker, pk=attempt.pk, status__in=ACTIVE).update(
            stop_mode=mode, stop_requested_by=user, stop_requested_at=Coalesce("stop_requested_at", now)
        )
        if not updated_count:
            return False
        add_event(attempt, "requested", user.get_username(), mode=mode.value)
        if not cancel(attempt, user, dispatch=dispatch):
            transaction.on_commit(lambda: _send_stop(attempt, mode), robust=True)
    attempt.refresh_from_db()
    return True


@dataclass(frozen=True)
class StopCounts:
    """Outcomes of a request to stop several runs, as counts."""

    mode: StopMode
    requested: int
    cancelled: int
    before: int
    ended: int

    def __str__(self) -> str:
        parts = [
            (self.requested, f"Asked {counted(self.requested, 'run')} to {STOPS[self.mode]}."),
            (self.cancelled, f"Removed {counted(self.cancelled, 'run')} from the queue."),
            (self.before, f"{counted(self.before, 'run')} had already been asked."),
            (self.ended, f"{counted(self.ended, 'run')} had already ended."),
        ]
        return " ".join(sentence for number, sentence in parts if number) or "No run was selected."


def request_stops(attempts: Sequence[Attempt], mode: StopMode, user: User) -> StopCounts:
    """Request stops of several runs independently, so that a run that has ended doesn't affect the others, and count
    the outcomes. The queue is dispatched only at the end, so that no run starts just before it is stopped."""
    outcomes: Counter[str] = Counter()
    for attempt in attempts:
        has_changed = request_stop(attempt, mode, user, dispatch=False)
        attempt.refresh_from_db()
        if has_changed:
            outcomes["cancelled" if attempt.reason == EndReason.CANCELLED else "requested"] += 1
        else:
            outcomes["ended" if attempt.status in FINAL else "before"] += 1
    if outcomes["cancelled"]:
        transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return StopCounts(mode, outcomes["requested"], outcomes["cancelled"], outcomes["before"], outcomes["ended"])


def cancel(attempt: Attempt, user: User, *, dispatch: bool = True) -> bool:
    """Remove a queued attempt from the queue. Return False if it has already started or ended."""
    is_queued = Q(status=RunStatus.QUEUED)
    with transaction.atomic():
        actor = user.get_username()
        if not move(attempt, RunStatus.STOPPED, reason=EndReason.CANCELLED, actor=actor, only_if=is_queued):
            return False
        if dispatch:
            # Its reserved resources are available to others now.
            transaction.on_commit(dispatching.dispatch_ready, robust=True)
    return True


def _send_stop(attempt: Attempt, mode: StopMode) -> None:
    host = Attempt.objects.values_list("host__name", flat=True).get(pk=attempt.pk)
    if host is None:
        return
    try:
        host_commands.send(host, Task.STOP_RUN, [attempt.run_id, attempt.number, mode.value])
    except host_commands.BrokerDown as error:
        # The response to the supervisor's next sync contains the stop as well.
        log.warning("stop of %s was not pushed: %s", attempt.pk, error)
