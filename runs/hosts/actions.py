"""What an operator does with a host: release quarantined resources, give it up, remove it."""

from __future__ import annotations

from collections.abc import Iterable

from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from controlplane.accounts.models import User
from controlplane.hardware.models import Host
from runs import tick
from runs.hosts.cards import is_fresh
from runs.models import Attempt, Lease
from runs.scheduling import launching, leasing
from runs.states import ACTIVE, ON_HOST, RunStatus


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
            return f"{host.name} is in reach and would reappear at its next check-in. Stop its worker first."
        if Lease.objects.filter(host=row).exclude(state=Lease.RELEASED).exists():
            return f"{host.name} still holds leases: give the host up first, or release what is in quarantine."
        asked = Attempt.objects.filter(Q(host=row) | Q(host=None, run__host=row), status__in=ACTIVE)
        waiting = asked.select_related("run").first()
        if waiting is not None:
            verb = "waits for" if waiting.status == RunStatus.QUEUED else "is on"
            return f"{waiting.run.name} {verb} {host.name}: stop it first."
        Host.every.filter(pk=row.pk, removed_at=None).update(removed_at=timezone.now())
    return ""
