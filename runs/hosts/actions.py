"""Asking a host about a model, over Celery; the answer comes back over HTTP (`api`). What an operator's word does:
releasing what is quarantined, giving a host up, removing it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.hardware.models import Host, ModelInspection
from runs import tick
from runs.hosts.cards import is_fresh
from runs.models import Attempt, Lease
from runs.scheduling import host_commands, launching, leasing
from runs.states import ACTIVE, ON_HOST, RunStatus
from workers.contract import Task

ANSWER_WITHIN_S = 60
"""A question without an answer for so long is given up; the next look asks again."""
FRESH_FOR = timedelta(minutes=10)
"""An answer may be used for so long: a folder on a host can change."""


class HostAway(Exception):
    """The question can't be sent: no message reaches the host now."""


def ask_inspection(host: Host, model: str, *, again: bool = False) -> ModelInspection:
    """The open or recent question about this model, or a new one, sent to the host. `again`: an answer that is there
    won't do, since somebody has changed what it was about (accepted a model's terms, freed some disk)."""
    known = latest(host, model)
    if known is not None and not (again and known.answered_at):
        return known
    inspection = ModelInspection.objects.create(host=host, model=model)
    try:
        host_commands.send(host.name, Task.INSPECT_MODEL, [inspection.pk, model])
    except host_commands.BrokerDown as error:
        inspection.delete()
        raise HostAway(str(error)) from error
    return inspection


def latest(host: Host, model: str) -> ModelInspection | None:
    """A recent answer, else a question that may still be answered."""
    now = timezone.now()
    asked = ModelInspection.objects.filter(host=host, model=model)
    answered = asked.filter(answered_at__gte=now - FRESH_FOR).order_by("-answered_at").first()
    if answered is not None:
        return answered
    return asked.filter(answered_at=None, asked_at__gte=now - timedelta(seconds=ANSWER_WITHIN_S)).first()


def overdue(inspection: ModelInspection) -> bool:
    """No answer came in time."""
    return inspection.answered_at is None and inspection.asked_at < timezone.now() - timedelta(seconds=ANSWER_WITHIN_S)


def release(leases: Iterable[Lease], user: User) -> list[str]:
    """Give quarantined resources back on a person's word, and to whoever waits for them. Answers which were."""
    with transaction.atomic():
        released = [lease.resource for lease in leases if leasing.release(lease, by=user.get_username())]
        if released:
            transaction.on_commit(launching.dispatch_ready, robust=True)
    return released


def on_host(host: Host) -> list[Attempt]:
    """The attempts that give_up would end."""
    found = Attempt.objects.filter(host=host, status__in=ON_HOST).select_related("run", "run__owner", "host")
    return list(found.order_by("dispatched_at", "pk"))


def give_up(host: Host, user: User, *, free: bool) -> tuple[int, int]:
    """End what ran on a host that is out of reach, on a person's word; with `free` what it held may be used again.

    Without it what was held goes into quarantine: a host that comes back may still have the processes. Answers how
    many attempts were ended and how many resources released.
    """
    if is_fresh(host):
        return 0, 0
    ended = sum(tick.give_up(attempt, user.get_username()) for attempt in on_host(host))
    quarantined = Lease.objects.filter(host=host, state=Lease.QUARANTINED)
    return ended, len(release(quarantined, user)) if free else 0


def remove(host: Host) -> str:
    """Put a host out of sight until it announces itself again. Answers why not; "" when it is done."""
    with transaction.atomic():
        row = Host.every.select_for_update().get(pk=host.pk)
        if is_fresh(row):
            return f"{host.name} is in reach: it would be back with its next announcement. Stop its worker first."
        if Lease.objects.filter(host=row).exclude(state=Lease.RELEASED).exists():
            return f"{host.name} still holds leases: give the host up first, or release what is in quarantine."
        asked = Attempt.objects.filter(Q(host=row) | Q(host=None, run__host=row), status__in=ACTIVE)
        waiting = asked.select_related("run").first()
        if waiting is not None:
            verb = "waits for" if waiting.status == RunStatus.QUEUED else "is on"
            return f"{waiting.run.name} {verb} {host.name}: stop it first."
        Host.every.filter(pk=row.pk, removed_at=None).update(removed_at=timezone.now())
    return ""
