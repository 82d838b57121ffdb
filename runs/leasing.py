"""Resources of a host: what an attempt needs, what is free, taking all of it at once, and giving it back.

A partial unique constraint on (host, resource) does the locking: of two dispatchers one gets an IntegrityError.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q
from django.utils import timezone

from controlplane.hardware.models import Host
from runs.models import Attempt, Lease
from workers.contract import HardwareSpec, Placement, Receipt, WeightSync

ACTIVE = Q(state__in=(Lease.HELD, Lease.QUARANTINED))
BUSY_MIB = 1024
"""A GPU with more than this in use, though not leased, is somebody else's: taken last."""
DEFAULT_PORTS = (21000, 21999)


@dataclass(frozen=True)
class Need:
    gpus: int
    server_gpus: int
    cpu_slots: int
    ports: int
    pinned: tuple[int, ...] = ()
    """GPUs that the profile names for the trainer; empty: any."""
    pinned_server: tuple[int, ...] = ()
    first_port: int | None = None
    """Of the servers' ports, where the profile names it."""
    group_port: bool = False
    """One more port, for NCCL's group."""


@dataclass(frozen=True)
class Short:
    """The host has what is needed, but not now, or not at all; `text` says to people what is waited for."""

    text: str


def need_of(hardware: HardwareSpec) -> Need:
    server, gpus, server_gpus = hardware.vllm_server, hardware.trainer_gpus, hardware.server_gpus
    # Without a GPU to lease, a CPU slot is what keeps runs from crowding one host.
    slots = hardware.cpu_slots if gpus or server_gpus else max(1, hardware.cpu_slots)
    if server is None:
        return Need(gpus, server_gpus, slots, 0, pinned=hardware.trainer_gpu_ids)
    return Need(
        gpus,
        server_gpus,
        slots,
        ports=0 if server.attached else server.count,
        pinned=hardware.trainer_gpu_ids,
        pinned_server=server.gpu_ids if server.own_gpus else (),
        first_port=server.port,
        group_port=server.weight_sync == WeightSync.NCCL,
    )


def held() -> defaultdict[int, dict[str, Lease]]:
    """Every resource that can't be taken, by host."""
    found: defaultdict[int, dict[str, Lease]] = defaultdict(dict)
    for lease in Lease.objects.filter(ACTIVE).select_related("attempt__run"):
        found[lease.host_id][lease.resource] = lease
    return found


def place(need: Need, host: Host, held: Mapping[str, Lease]) -> Placement | Short:
    """Name the resources of a host for an attempt, or say what it waits for; `held` are the host's own."""
    gpus = _gpus_of(host)
    if not (need.pinned or need.pinned_server) and len(gpus) < need.gpus + need.server_gpus:
        return Short(f"{host.name} has {_count(len(gpus), 'GPU')}, this run needs {need.gpus + need.server_gpus}")
    chosen = _choose("gpu", "GPU", gpus, need.pinned, need.gpus, host, held, besides=need.pinned_server)
    if isinstance(chosen, Short):
        return chosen
    server = _choose("gpu", "GPU", gpus, need.pinned_server, need.server_gpus, host, held, besides=chosen)
    if isinstance(server, Short):
        return server
    slots = _choose("cpu", "CPU slot", range(int(host.inventory.get("cpu_slots") or 0)), (), need.cpu_slots, host, held)
    if isinstance(slots, Short):
        return slots
    first, last = host.inventory.get("port_range") or DEFAULT_PORTS
    # What listens there without a lease is somebody else's, and the run would end at its start.
    foreign = {port for port in host.inventory.get("listening") or () if f"port:{port}" not in held}
    pool = [port for port in range(int(first), int(last) + 1) if port not in foreign]
    fixed = () if need.first_port is None else tuple(range(need.first_port, need.first_port + need.ports))
    ports = _choose("port", "port", pool, fixed, need.ports, host, held)
    if isinstance(ports, Short):
        return ports
    group = _choose("port", "port", pool, (), int(need.group_port), host, held, besides=ports)
    if isinstance(group, Short):
        return group
    return Placement(
        host=host.name,
        gpus=chosen,
        server_gpus=server,
        cpu_slots=slots,
        ports=ports,
        group_port=group[0] if group else None,
    )


def _choose(
    kind: str,
    word: str,
    pool: Sequence[int],
    pinned: tuple[int, ...],
    count: int,
    host: Host,
    held: Mapping[str, Lease],
    *,
    besides: tuple[int, ...] = (),
) -> tuple[int, ...] | Short:
    """`count` resources of one kind, the pinned ones where some are; never one of `besides`, which this run has."""
    if pinned:
        # A port may lie outside the host's range; a GPU that isn't there can't be had.
        absent = [index for index in pinned if kind != "port" and index not in pool]
        if absent:
            return Short(f"{host.name} has no {word} {absent[0]}, which this run's profile names")
        taken = [index for index in pinned if f"{kind}:{index}" in held]
        return Short(_waits(word, kind, pinned, held, len(taken))) if taken else pinned
    free = [index for index in pool if f"{kind}:{index}" not in held and index not in besides]
    if len(pool) - len(besides) < count:
        wanted = count + len(besides)
        return Short(f"{host.name} has {_count(len(pool), word)}, this run needs {wanted}")
    if len(free) < count:
        return Short(_waits(word, kind, [i for i in pool if i not in besides], held, count - len(free)))
    return tuple(free[:count])


def take(attempt: Attempt, host: Host, placement: Placement) -> None:
    """Insert every lease, inside the caller's transaction. IntegrityError: another dispatcher was first."""
    Lease.objects.bulk_create([Lease(attempt=attempt, host=host, resource=name) for name in resources(placement)])


def resources(placement: Placement) -> list[str]:
    ports = [*placement.ports, *([] if placement.group_port is None else [placement.group_port])]
    return [
        *(f"gpu:{index}" for index in placement.every_gpu),
        *(f"cpu:{index}" for index in placement.cpu_slots),
        *(f"port:{port}" for port in ports),
    ]


def settle(attempt: Attempt, receipt: Receipt | None, *, by: str, proved: bool = False) -> None:
    """At an attempt's end: what is proved free is released, the rest quarantined until a person releases it.

    `proved` is for ends that need no receipt: nothing was ever started, or the host has booted anew.
    """
    leases = Lease.objects.filter(ACTIVE, attempt=attempt)
    if not (proved or (receipt is not None and receipt.free)):
        leases.filter(state=Lease.HELD).update(state=Lease.QUARANTINED)
        return
    if receipt is not None and receipt.port_free is False and not proved:
        leases.filter(resource__startswith="port:", state=Lease.HELD).update(state=Lease.QUARANTINED)
        leases = leases.exclude(resource__startswith="port:")
    leases.update(state=Lease.RELEASED, released_at=timezone.now(), released_by=by)


def release(lease: Lease, *, by: str) -> bool:
    """A person vouches that a quarantined resource is free. False: it was not in quarantine any more."""
    quarantined = Lease.objects.filter(pk=lease.pk, state=Lease.QUARANTINED)
    return bool(quarantined.update(state=Lease.RELEASED, released_at=timezone.now(), released_by=by))


def _gpus_of(host: Host) -> list[int]:
    """Indexes, the idle ones first."""
    gpus = host.inventory.get("gpus") or []
    return [int(gpu["index"]) for gpu in sorted(gpus, key=lambda g: ((g.get("used_mib") or 0) > BUSY_MIB, g["index"]))]


def _waits(word: str, kind: str, pool: Sequence[int], held: Mapping[str, Lease], missing: int) -> str:
    leases = [held[f"{kind}:{index}"] for index in sorted(pool) if f"{kind}:{index}" in held]
    lease = next((each for each in leases if each.state == Lease.HELD), leases[0])
    index = lease.resource.partition(":")[2]
    if lease.state == Lease.QUARANTINED:
        why = f"in quarantine after {lease.attempt.run.name}: it was not proved free"
    else:
        why = f"held by {lease.attempt.run.name}"
    more = f" and {missing - 1} more" if missing > 1 else ""
    return f"waits for {word} {index}{more}, {why}"


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
