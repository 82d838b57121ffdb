"""An announcement into a host's row; and whether somebody looks, so that the host announces itself more often."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from controlplane.hardware import history, inventory
from controlplane.hardware.models import Host
from runs.models import Lease

WATCHED_FOR = timedelta(seconds=15)
"""A page that is open asks every few seconds; after so long without a question nobody looks."""
TOUCH_EVERY = timedelta(seconds=5)


def accept(name: str, said: dict[str, Any], schema: dict[str, Any] | None, now: datetime) -> Host:
    """Store what a host says of itself; a host that was removed is back."""
    facts = inventory.clean(said)
    gpus = facts.get("gpus") or []
    with transaction.atomic():
        Host.every.get_or_create(name=name)
        host = Host.every.select_for_update().get(name=name)
        host.inventory, host.announced_at, host.removed_at = facts, now, None
        host.history = history.add(host.history, gpus, now.timestamp())
        host.idle_mib = _idle(host, gpus)
        # Only these columns: draining belongs to operators, watching to the page.
        columns = ["inventory", "announced_at", "removed_at", "history", "idle_mib"]
        if schema is not None:
            host.trainer_schema = schema
            columns.append("trainer_schema")
        host.save(update_fields=columns)
    return host


def watch(now: datetime) -> None:
    """Somebody has the Hardware page open."""
    due = Q(watched_at=None) | Q(watched_at__lt=now - TOUCH_EVERY)
    Host.objects.filter(due).update(watched_at=now)


def is_watched(host: Host, now: datetime) -> bool:
    return host.watched_at is not None and now - host.watched_at < WATCHED_FOR


def _idle(host: Host, gpus: list[dict[str, Any]]) -> dict[str, int]:
    """What is in use on each GPU that nobody leases; a leased one keeps what it had before."""
    before = host.idle_mib if isinstance(host.idle_mib, dict) else {}
    active = Lease.objects.filter(host=host, resource__startswith="gpu:").exclude(state=Lease.RELEASED)
    leased = set(active.values_list("resource", flat=True)) if gpus else set()
    idle = {}
    for gpu in gpus:
        key = str(gpu["index"])
        if f"gpu:{key}" not in leased:
            idle[key] = gpu["used_mib"]
        elif (kept := inventory.whole(before.get(key))) is not None:
            idle[key] = kept
    return idle
