"""Hosts for people and for preflight: what they announced, read defensively, and what leases hold of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.utils import timezone

from controlplane.hardware.models import Host
from runs.leasing import BUSY_MIB
from runs.models import Lease


@dataclass(frozen=True)
class Holder:
    """The lease on a resource."""

    lease_id: int
    run_id: str
    run_name: str
    since: datetime
    quarantined: bool


@dataclass(frozen=True)
class GpuView:
    index: int
    name: str
    uuid: str
    memory_mib: int
    used_mib: int
    util_percent: float | None
    power_w: float | None
    temperature_c: float | None
    holder: Holder | None

    @property
    def busy(self) -> bool:
        """Somebody uses it, whether they lease it or not."""
        return self.used_mib > BUSY_MIB

    @property
    def parts(self) -> list[dict[str, Any]]:
        """For the memory bar."""
        return [{"label": "used", "value": self.used_mib, "colour": "c1"}]


@dataclass(frozen=True)
class SlotView:
    index: int
    holder: Holder | None


@dataclass(frozen=True)
class HostView:
    row: Host
    fresh: bool
    gpus: tuple[GpuView, ...]
    slots: tuple[SlotView, ...]
    trainer: str
    cpu_count: int
    memory_mib: int
    memory_used_mib: int
    disk_free_mib: int | None
    models: tuple[str, ...]
    model_roots: tuple[str, ...]
    versions: dict[str, str]
    quarantined: tuple[tuple[str, Holder], ...] = field(default=())
    """(resource, lease) of every lease whose resource isn't proved free."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def announced_at(self) -> datetime | None:
        return self.row.announced_at

    @property
    def memory_parts(self) -> list[dict[str, Any]]:
        return [{"label": "used", "value": self.memory_used_mib, "colour": "c1"}]


def host_views(hosts: Iterable[Host] | None = None) -> list[HostView]:
    """Every host (or these), each with the leases that hold something of it."""
    rows = list(Host.objects.all() if hosts is None else hosts)
    held: dict[int, dict[str, Holder]] = {row.pk: {} for row in rows}
    leases = Lease.objects.filter(host__in=rows, state__in=[Lease.HELD, Lease.QUARANTINED])
    for lease in leases.select_related("attempt__run"):
        held[lease.host_id][lease.resource] = Holder(
            lease_id=lease.pk,
            run_id=lease.attempt.run_id,
            run_name=lease.attempt.run.name,
            since=lease.taken_at,
            quarantined=lease.state == Lease.QUARANTINED,
        )
    return [_view(row, held[row.pk]) for row in rows]


def is_fresh(host: Host) -> bool:
    """Heard of lately: a launch can arrive there."""
    if host.announced_at is None:
        return False
    return timezone.now() - host.announced_at <= timedelta(seconds=settings.HOST_STALE_AFTER_S)


def _view(row: Host, held: dict[str, Holder]) -> HostView:
    facts = row.inventory if isinstance(row.inventory, dict) else {}
    return HostView(
        row=row,
        fresh=is_fresh(row),
        gpus=tuple(_gpu(g, held) for g in _list(facts.get("gpus")) if isinstance(g, dict) and "index" in g),
        slots=tuple(SlotView(i, held.get(f"cpu:{i}")) for i in range(_int(facts.get("cpu_slots")))),
        trainer=str(facts.get("trainer") or "checking"),
        cpu_count=_int(facts.get("cpu_count")),
        memory_mib=_int(facts.get("memory_mib")),
        memory_used_mib=_int(facts.get("memory_used_mib")),
        disk_free_mib=_int(facts["disk_free_mib"]) if facts.get("disk_free_mib") is not None else None,
        models=tuple(str(m) for m in _list(facts.get("models"))),
        model_roots=tuple(str(m) for m in _list(facts.get("model_roots"))),
        versions=_versions(facts.get("versions")),
        quarantined=tuple((resource, holder) for resource, holder in sorted(held.items()) if holder.quarantined),
    )


def _gpu(gpu: dict[str, Any], held: dict[str, Holder]) -> GpuView:
    index = _int(gpu.get("index"))
    return GpuView(
        index=index,
        name=str(gpu.get("name") or "GPU"),
        uuid=str(gpu.get("uuid") or ""),
        memory_mib=_int(gpu.get("memory_mib")),
        used_mib=_int(gpu.get("used_mib")),
        util_percent=_number(gpu.get("util_percent")),
        power_w=_number(gpu.get("power_w")),
        temperature_c=_number(gpu.get("temperature_c")),
        holder=held.get(f"gpu:{index}"),
    )


def _versions(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items() if v} if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _int(value: Any) -> int:
    return int(_number(value) or 0)
