"""Views of hosts for pages and preflight: the announcement, read defensively, and the leases on the resources."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import F
from django.utils import timezone

from controlplane.catalogue.hardware import history, inventory
from controlplane.catalogue.hardware.links import Links, links_of
from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.sandboxes import HostSandbox, sandbox_of
from controlplane.catalogue.joining.models import HostCredential
from runs.engine.hosts.membership import credentials_of
from runs.engine.models import Attempt, Lease
from runs.engine.scheduling.leasing import BUSY_MIB
from runs.engine.sentences import resource_words

MIN_SHM_MIB = 1024
"""Minimum shared memory (/dev/shm), in MiB, for vLLM or for several ranks."""


@dataclass(frozen=True)
class Holder:
    """The run that holds a resource, and its lease."""

    lease_id: int
    run_id: str
    run_name: str
    since: datetime
    quarantined: bool
    owner: str = ""
    role: str = ""
    """Purpose for which the run uses the GPU, or "" if that is obvious."""


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
    idle_mib: int = 0
    """MiB in use before the run that holds the GPU."""
    history: Any = None
    position: int = 0
    capability: str = ""

    @property
    def busy(self) -> bool:
        """True if a program is using the GPU, with or without a lease."""
        return self.used_mib > BUSY_MIB

    @property
    def held_mib(self) -> int:
        """MiB used by the run that holds the GPU: usage above the idle baseline."""
        return max(0, self.used_mib - self.idle_mib) if self.holder else 0

    @property
    def parts(self) -> list[dict[str, Any]]:
        if self.holder is None:
            return [{"label": "in use", "value": self.used_mib, "colour": "c8"}]
        segment = ("left over", "left") if self.holder.quarantined else ("held by the run", "c1")
        return [
            {"label": segment[0], "value": self.held_mib, "colour": segment[1]},
            {"label": "other", "value": self.used_mib - self.held_mib, "colour": "c8"},
        ]

    @property
    def use_lines(self) -> list[str]:
        """Utilisation over the last ten minutes, as the points of SVG lines."""
        return history.lines(self.history, self.position, timezone.now().timestamp())


@dataclass(frozen=True)
class SlotView:
    index: int
    holder: Holder | None


@dataclass(frozen=True)
class QuarantinedResources:
    label: str
    """The resources' names, such as `GPU 0, 1 and port 21000`."""
    holder: Holder

    @property
    def several(self) -> bool:
        return "," in self.label or " and " in self.label


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
    """All quarantined leases, as (resource, holder)."""
    holders: tuple[Holder, ...] = ()
    """One holder for each run."""
    links: Links = field(default_factory=lambda: Links(""))
    disk_total_mib: int | None = None
    cpu_percent: float | None = None
    listening: tuple[int, ...] = ()
    gpu_error: str = ""
    boot_id: str = ""
    booted_at: datetime | None = None
    driver: str = ""
    cuda: dict[str, Any] | None = None
    """{"built_for": torch's CUDA version, "usable": bool} of the trainer's interpreter; None if unknown."""
    shm_mib: int | None = None
    sharing: tuple[str, ...] = ()
    """Names of other hosts with the same folder of runs."""
    credential: HostCredential | None = None
    """The newest credentials, revoked or not."""

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def free_gpus(self) -> int:
        return sum(1 for gpu in self.gpus if gpu.holder is None and not gpu.busy)

    @property
    def sandbox(self) -> HostSandbox:
        return sandbox_of(self.row)

    @property
    def announced_at(self) -> datetime | None:
        return self.row.announced_at

    @property
    def memory_parts(self) -> list[dict[str, Any]]:
        return [{"label": "in use", "value": self.memory_used_mib, "colour": "c8"}]

    @property
    def disk_parts(self) -> list[dict[str, Any]]:
        used_mib = (self.disk_total_mib or 0) - (self.disk_free_mib or 0)
        return [{"label": "in use", "value": max(0, used_mib), "colour": "c8"}]

    @property
    def quarantines(self) -> list[QuarantinedResources]:
        """Quarantined resources, grouped by the run that left them."""
        by_run: dict[str, list[tuple[str, Holder]]] = {}
        for resource, holder in self.quarantined:
            by_run.setdefault(holder.run_id, []).append((resource, holder))
        return [
            QuarantinedResources(resource_words([name for name, _ in leases]), leases[0][1])
            for leases in by_run.values()
        ]

    @property
    def gpu_names(self) -> list[str]:
        return list(dict.fromkeys(gpu.name for gpu in self.gpus))

    @property
    def running(self) -> list[Holder]:
        """Runs that hold resources outside quarantine."""
        return [holder for holder in self.holders if not holder.quarantined]

    @property
    def removable(self) -> bool:
        return not self.fresh and not self.holders


def host_views(hosts: Iterable[Host] | None = None) -> list[HostView]:
    """Build views of all hosts, or of the given ones, with their leases."""
    rows = list(Host.objects.all() if hosts is None else hosts)
    holders: dict[int, dict[str, Holder]] = {row.pk: {} for row in rows}
    leases = Lease.objects.filter(host__in=rows, state__in=[Lease.HELD, Lease.QUARANTINED])
    for lease in leases.select_related("attempt__run__owner").order_by("taken_at", "pk"):
        holders[lease.host_id][lease.resource] = Holder(
            lease_id=lease.pk,
            run_id=lease.attempt.run_id,
            run_name=lease.attempt.run.name,
            since=lease.taken_at,
            quarantined=lease.state == Lease.QUARANTINED,
            owner=lease.attempt.run.owner.username,
            role=_role(lease.attempt, lease.resource),
        )
    sharing, credentials = _hosts_by_shared_folder(rows), credentials_of(rows)
    views = [
        replace(_view(row, holders[row.pk]), sharing=sharing.get(row.pk, ()), credential=credentials.get(row.name))
        for row in rows
    ]
    any_seems_busy = any(gpu.busy and not gpu.holder for view in views for gpu in view.gpus)
    return _correct_freed_gpus(views) if any_seems_busy else views


def _correct_freed_gpus(views: list[HostView]) -> list[HostView]:
    """Correct the used memory of GPUs that were proved free after their host's last announcement."""
    released_leases = Lease.objects.filter(host__in=[view.row for view in views], resource__startswith="gpu:")
    released_leases = released_leases.filter(state=Lease.RELEASED, released_at__gt=F("host__announced_at"))
    resources = set(released_leases.values_list("host_id", "resource"))

    def correct(gpu: GpuView, host_id: int) -> GpuView:
        is_outdated = gpu.holder is None and (host_id, f"gpu:{gpu.index}") in resources
        return replace(gpu, used_mib=min(gpu.used_mib, gpu.idle_mib)) if is_outdated else gpu

    return [replace(view, gpus=tuple(correct(gpu, view.row.pk) for gpu in view.gpus)) for view in views]


def _hosts_by_shared_folder(rows: Iterable[Host]) -> dict[int, tuple[str, ...]]:
    """Map host ids to the names of the other hosts that announce the same folder of runs."""
    by_folder: defaultdict[str, list[Host]] = defaultdict(list)
    for row in rows:
        if folder := row.inventory.get("runs_folder"):
            by_folder[folder].append(row)
    return {
        row.pk: tuple(host.name for host in group if host.pk != row.pk) for group in by_folder.values() for row in group
    }


def is_fresh(host: Host) -> bool:
    return host.is_fresh(timezone.now())


def _view(row: Host, holders: dict[str, Holder]) -> HostView:
    facts = inventory.clean(row.inventory)
    gpus: list[dict[str, Any]] = facts.get("gpus") or []
    boot_time: float | None = facts.get("booted_at")
    announced_facts: dict[str, Any] = {
        **{name: facts.get(name) for name in ("disk_free_mib", "disk_total_mib", "cpu_percent", "cuda", "shm_mib")},
        **{name: facts.get(name) or 0 for name in ("cpu_count", "memory_mib", "memory_used_mib")},
        **{name: tuple(facts.get(name) or ()) for name in ("models", "model_roots", "listening")},
    }
    return HostView(
        row=row,
        fresh=is_fresh(row),
        gpus=tuple(_gpu(row, position, gpu, holders) for position, gpu in enumerate(gpus)),
        slots=tuple(SlotView(i, holders.get(f"cpu:{i}")) for i in range(facts.get("cpu_slots") or 0)),
        trainer=facts.get("trainer") or "checking",
        versions=facts.get("versions") or {},
        quarantined=tuple((resource, holder) for resource, holder in sorted(holders.items()) if holder.quarantined),
        holders=tuple({holder.run_id: holder for holder in reversed(holders.values())}.values()),
        links=links_of(gpus),
        gpu_error=facts.get("gpu_error") or "",
        boot_id=facts.get("boot_id") or "",
        booted_at=datetime.fromtimestamp(boot_time, UTC) if boot_time is not None and 0 < boot_time < 4e9 else None,
        driver=next((gpu["driver"] for gpu in gpus if gpu["driver"]), ""),
        **announced_facts,
    )


def _gpu(row: Host, position: int, gpu: Mapping[str, Any], holders: Mapping[str, Holder]) -> GpuView:
    idle_mib = row.idle_mib if isinstance(row.idle_mib, dict) else {}
    announced_facts = {name: value for name, value in gpu.items() if name not in ("driver", "links")}
    return GpuView(
        **announced_facts,
        holder=holders.get(f"gpu:{gpu['index']}"),
        idle_mib=inventory.count(idle_mib.get(str(gpu["index"]))) or 0,
        history=row.history,
        position=position,
    )


def _role(attempt: Attempt, resource: str) -> str:
    kind, _, index = resource.partition(":")
    placement = attempt.placement or {}
    if kind != "gpu" or not placement.get("server_gpus"):
        return ""
    return "vLLM server" if int(index) in placement["server_gpus"] else "trainer"
