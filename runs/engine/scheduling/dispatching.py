"""Dispatching: walking the queue, leasing everything that an attempt needs, and launching it."""

import logging
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.dispatch import receiver
from django.utils import timezone

from controlplane.catalogue.hardware import host_commands
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.models import limits_raised
from controlplane.platform.http.tokens import attempt_token
from runs.engine.models import Attempt, Run, new_run_id
from runs.engine.records import RunEvent
from runs.engine.scheduling import gpu_queue, leasing, limits, spending
from runs.engine.scheduling.gpu_queue import Capacity
from runs.engine.scheduling.leasing import Shortage
from runs.engine.spec import spec_of
from runs.engine.states import RunStatus
from runs.engine.transitions import move
from runs.engine.warm import lifecycle
from workers.contract.run.spec import AttemptSpec, Placement
from workers.contract.stack import warm
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.contract.wire.names import EndReason, EventKind, Task

log = logging.getLogger(__name__)

MAX_TRIES = 5
"""Number of tries to start one attempt in a pass, each after another dispatcher took a resource first."""
SET_BY_START = (
    "status",
    "host",
    "placement",
    "first_seq",
    "last_seq",
    "dispatched_at",
    "waits_for",
    "waits_how",
    "waits_on",
)
"""Fields that a failed start may have changed on the attempt in memory."""
LATE_ROOM = 1_000_000
"""Number of seqs left free after an attempt whose last line is missing, since its outbox may still arrive."""


def dispatch_ready() -> int:
    """Walk the queue in order and start every attempt whose resources are free and not reserved. Return the number of
    attempts started."""
    started_count = 0
    capacity: Capacity | None = None
    for attempt in gpu_queue.queued_attempts().select_related("run__owner", "run__group"):
        capacity = capacity or Capacity.read()
        try:
            result = _start_somewhere(attempt, capacity)
        except ContractError as error:
            _give_up(attempt, error)
            continue
        if isinstance(result, Shortage):
            lifecycle.end_for_queued_run(result.servers_to_end)
            _store_shortage(attempt, result)
        else:
            started_count += result
    return started_count


@receiver(limits_raised)
def start_queued_runs(**signal: Any) -> None:
    dispatch_ready()


def send_launch(attempt: Attempt, now: datetime | None = None) -> bool:
    """Send an attempt's launch message, and return whether it was sent. Of concurrent senders, only one sends it. If
    the broker is down, the tick retries."""
    now = now or timezone.now()
    try:
        spec = attempt_spec(attempt)
    except ContractError as error:
        _give_up(attempt, error)
        return False
    unclaimed_attempt = Attempt.objects.filter(pk=attempt.pk, status=RunStatus.STARTING, claimed_at=None)
    sent_count = attempt.launches_sent
    if not unclaimed_attempt.filter(launches_sent=sent_count).update(launches_sent=sent_count + 1, launch_sent_at=now):
        return False
    arguments = [to_dict(spec), attempt_token(attempt.pk)]
    try:
        host_commands.send(spec.placement.host, Task.LAUNCH_RUN, arguments)
    except host_commands.BrokerDown as error:
        log.warning("launch of %s was not sent: %s", attempt.pk, error)
        unclaimed_attempt.filter(launches_sent=sent_count + 1).update(launches_sent=sent_count, launch_sent_at=None)
        return False
    return True


def attempt_spec(attempt: Attempt) -> AttemptSpec:
    """Build the content of spec.json, a file that the launcher writes."""
    return AttemptSpec(
        attempt_id=attempt.pk,
        number=attempt.number,
        first_seq=attempt.first_seq or 1,
        run=spec_of(attempt.run),
        placement=from_dict(Placement, attempt.placement),
        resume_from=attempt.resume_from or None,
    )


def _start_somewhere(attempt: Attempt, capacity: Capacity) -> Shortage | bool:
    """Start an attempt on a host where its resources are free. Return a Shortage if there is none. Otherwise return
    whether this call started it, since another dispatcher or a cancellation may have been first."""
    if (shortage := capacity.over_limit(attempt.run)) is not None:
        return shortage
    for _ in range(MAX_TRIES):
        result = capacity.find_for(attempt)
        if isinstance(result, Shortage):
            return result
        try:
            has_started = _start(attempt, *result)
        except limits.OverLimit as error:
            return Shortage(str(error))
        except IntegrityError:
            # Another dispatcher took one of the resources first.
            attempt.refresh_from_db(fields=SET_BY_START)
            capacity.read_again()
            continue
        if has_started:
            capacity.occupy(*result, attempt.run)
        else:
            capacity.read_again()
        return has_started
    return Shortage("waits for its turn")


def _start(attempt: Attempt, host: Host, placement: Placement) -> bool:
    """Write the leases, the status STARTING and the first seq in one transaction, and send the launch on commit. Return
    False if the attempt is no longer queued."""
    spec, servers = spec_of(attempt.run), None
    if warm.shares_servers(spec) and placement.warm is None:
        placement, servers = warm.split(placement, spec, f"{new_run_id()}-1")
    with transaction.atomic():
        limits.claim_start(attempt.run)
        first_seq = _first_seq(attempt)
        placement = spending.with_spending(attempt, host, placement)
        facts = {"host": host, "placement": to_dict(placement), "first_seq": first_seq, "last_seq": first_seq - 1}
        if not move(attempt, RunStatus.STARTING, reason="dispatched", actor="dispatcher", facts=facts):
            return False
        leasing.insert_leases(attempt, host, placement)
        if servers is not None:
            server = lifecycle.begin(attempt, host, spec, servers)
            transaction.on_commit(lambda: send_launch(server), robust=True)
        elif placement.warm:
            lifecycle.attach(attempt, placement.warm.attempt_id)
        if not Host.objects.filter(pk=host.pk).exists():
            # The host has just left: leaving locks its row, to which leases refer.
            raise IntegrityError(f"{host.name} has left.")
        transaction.on_commit(lambda: send_launch(attempt), robust=True)
    return True


def _give_up(attempt: Attempt, error: ContractError) -> None:
    """End an unstarted attempt whose spec this version can't read (after a downgrade), so that it doesn't block
    others."""
    log.error("%s can't be launched: %s", attempt.pk, error)
    detail, is_unclaimed = f"The run's spec can't be read: {error}", Q(claimed_at=None)
    with transaction.atomic():
        reason, actor = EndReason.LAUNCH_FAILED, "dispatcher"
        if move(attempt, RunStatus.FAILED, reason=reason, actor=actor, detail=detail, only_if=is_unclaimed):
            leasing.release_or_quarantine(attempt, None, by=actor, proved=True)
            lifecycle.detach(attempt, proved=True)


def _store_shortage(attempt: Attempt, shortage: Shortage) -> None:
    hold = shortage.hold
    columns = {
        "waits_for": shortage.text[:200],
        "waits_how": hold.how if hold else "",
        "waits_on_id": hold.run_id if hold else None,
    }
    if any(getattr(attempt, name) != value for name, value in columns.items()):
        Attempt.objects.filter(pk=attempt.pk, status=RunStatus.QUEUED).update(**columns)


def _first_seq(attempt: Attempt) -> int:
    if attempt.number == 1:
        return 1
    last_seq = Run.objects.values_list("last_seq", flat=True).get(pk=attempt.run_id)
    earlier_attempts = attempt.run.attempts.filter(number__lt=attempt.number, first_seq__isnull=False)
    last_line = RunEvent.objects.filter(run=attempt.run_id, seq=last_seq, kind=EventKind.ENDED)
    is_complete = not earlier_attempts.exists() or last_line.exists()
    return last_seq + 1 if is_complete else last_seq + 1 + LATE_ROOM
