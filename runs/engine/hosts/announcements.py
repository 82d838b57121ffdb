"""Storage of hosts' announcements, and the shorter interval between them while the Hardware page is open."""

from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Q

from controlplane.catalogue.hardware import history, inventory
from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Lease

WATCHED_FOR = timedelta(seconds=15)
"""Time without a request after which the Hardware page counts as closed; an open page polls every few seconds."""
TOUCH_EVERY = timedelta(seconds=5)


def accept(name: str, announcement: dict[str, Any], schema: dict[str, Any] | None, now: datetime) -> Host:
    """Store a host's announcement, and return the host. A removed host is shown again."""
    facts = inventory.clean(announcement)
    gpus = facts.get("gpus") or []
    with transaction.atomic():
        Host.every.get_or_create(name=name)
        host = Host.every.select_for_update().get(name=name)
        host.inventory, host.announced_at, host.removed_at = facts, now, None
        host.history = history.add(host.history, gpus, now.timestamp())
        host.idle_mib = _idle_memory(host, gpus)
        # Only these columns: draining belongs to operators, watching to the page.
        columns = ["inventory", "announced_at", "removed_at", "history", "idle_mib"]
        if schema is not None:
            host.trainer_schema = schema
            columns.append("trainer_schema")
        host.save(update_fields=columns)
    return host


def is_another_machine(name: str, announcement: dict[str, Any], now: datetime) -> bool:
    host = Host.every.filter(name=name).first()
    return host is not None and host.is_another_machine(announcement.get("boot_id"), now)


def refuse(name: str) -> None:
    """Mark a host as unreachable because its announcement was refused, so that nothing is launched there."""
    Host.every.filter(name=name).exclude(announced_at=None).update(announced_at=None)


def watch(now: datetime) -> None:
    """Note that the Hardware page is open."""
    is_due = Q(watched_at=None) | Q(watched_at__lt=now - TOUCH_EVERY)
    Host.objects.filter(is_due).update(watched_at=now)


def is_watched(host: Host, now: datetime) -> bool:
    return host.watched_at is not None and now - host.watched_at < WATCHED_FOR


def _idle_memory(host: Host, gpus: list[dict[str, Any]]) -> dict[str, int]:
    """Return the memory in use on each unleased GPU, by index; a leased GPU keeps its last idle value."""
    previous_mib = host.idle_mib if isinstance(host.idle_mib, dict) else {}
    active_leases = Lease.objects.filter(host=host, resource__startswith="gpu:").exclude(state=Lease.RELEASED)
    leased_resources = set(active_leases.values_list("resource", flat=True)) if gpus else set()
    idle_mib = {}
    for gpu in gpus:
        key = str(gpu["index"])
        if f"gpu:{key}" not in leased_resources:
            idle_mib[key] = gpu["used_mib"]
        elif (previous_value := inventory.count(previous_mib.get(key))) is not None:
            idle_mib[key] = previous_value
    return idle_mib
