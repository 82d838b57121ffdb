"""Resources of a host: an attempt's needs, what is free, leasing all of it at once, and releasing it.

A partial unique constraint on (host, resource) is the lock: of two dispatchers one gets an IntegrityError.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

from django.db.models import Q
from django.utils import timezone

from controlplane.catalogue.hardware import sandboxes
from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Lease, Run
from runs.engine.states import Waits
from workers.contract.reports.lines import Receipt
from workers.contract.run.episodes import PartSpec
from workers.contract.run.hardware import HardwareSpec, WeightSync
from workers.contract.run.spec import Placement, RewardSpec
from workers.contract.stack import adapters
from workers.environments.entry import Entry
from workers.environments.library import LIBRARY as ENTRIES
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Cost, Reward

ACTIVE = Q(state__in=(Lease.HELD, Lease.QUARANTINED))
BUSY_MIB = 1024
"""MiB. A GPU with more in use and no lease is busy with something else: chosen last."""
DEFAULT_PORTS = (21000, 21999)


@dataclass(frozen=True)
class Need:
    gpus: int
    server_gpus: int
    cpu_slots: int
    ports: int
    pinned: tuple[int, ...] = ()
    """GPUs that the profile pins for the trainer; empty: any."""
    pinned_server: tuple[int, ...] = ()
    first_port: int | None = None
    """The servers' first port, if the profile sets it."""
    group_port: bool = False
    """One more port, for NCCL's group."""
    sandbox: bool = False
    """The rewards run code."""


@dataclass(frozen=True)
class Hold:
    """A run's claim on a resource that makes it unavailable for others."""

    how: Waits
    run_id: str
    run_name: str
    owner: str

    @classmethod
    def of(cls, run: Run, how: Waits) -> "Hold":
        return cls(how, run.pk, run.name, run.owner.get_username())


Taken = Mapping[str, Hold]
"""Unavailable resources of one host, by name as in a lease: `gpu:0`."""


@dataclass(frozen=True)
class Shortage:
    """A lack of resources on a host, temporary or not; `text` says what the run waits for."""

    text: str
    hold: Hold | None = None
    """The holder; of several, the most informative one."""
    gives_way: tuple[str, ...] = ()
    """Attempts of idle warm servers whose end is enough."""


def need_of(hardware: HardwareSpec, entries: Iterable[RewardSpec | PartSpec] = ()) -> Need:
    """Add up the resources that a run needs. `entries`: its rewards and the parts of its environment."""
    server, gpus, server_gpus = hardware.vllm_server, hardware.trainer_gpus, hardware.server_gpus
    # Without a GPU to lease, CPU slots limit the runs on a host.
    slots = hardware.cpu_slots if gpus or server_gpus else max(1, hardware.cpu_slots)
    sandbox = any(map(runs_code, entries))
    need = Need(gpus, server_gpus, slots, 0, pinned=hardware.trainer_gpu_ids, sandbox=sandbox)
    if server is None:
        return need
    return replace(
        need,
        ports=0 if server.attached else server.count,
        pinned_server=server.gpu_ids if server.own_gpus else (),
        first_port=server.port,
        group_port=server.weight_sync == WeightSync.NCCL,
    )


def runs_code(spec: RewardSpec | PartSpec) -> bool:
    entry: Reward | Entry | None = (LIBRARY if isinstance(spec, RewardSpec) else ENTRIES).get(spec.function)
    return entry is not None and entry.cost == Cost.SANDBOX


def beside_a_server(need: Need, hardware: HardwareSpec) -> Need:
    """Reduce a run's need by its servers, which already run."""
    count = hardware.vllm_server.count if hardware.vllm_server else 0
    return replace(need, server_gpus=0, ports=need.ports - count, pinned_server=(), first_port=None)


def host_problem(host: Host, now: datetime) -> str:
    """Explain why launches can't go to a host, or ""."""
    if host.draining:
        return f"host {host.name} is draining"
    if not host.is_fresh(now):
        return f"host {host.name} has not announced itself lately, so launches can't arrive there"
    return ""


def leased() -> defaultdict[int, dict[str, Hold]]:
    """Find all leased resources, by host."""
    by_host: defaultdict[int, dict[str, Hold]] = defaultdict(dict)
    columns = ("host_id", "resource", "state", "attempt__run_id", "attempt__run__name", "attempt__run__owner__username")
    for host_id, resource, state, *run in Lease.objects.filter(ACTIVE).values_list(*columns):
        by_host[host_id][resource] = Hold(Waits(state), *run)
    return by_host


def keepable(need: Need, host: Host, unavailable: Taken) -> list[str]:
    """List free resources of the host to reserve for a waiting attempt: all that it needs, or those of them that are
    free.

    Empty for a host where it could not start even after every run there had ended: what it lacks is in quarantine or
    missing, so it waits for an operator. That may take days, and one broken GPU must not block a whole host.
    """
    lasting = {name: hold for name, hold in unavailable.items() if hold.how == Waits.QUARANTINED}
    if isinstance(allocate(need, host, lasting, leased=unavailable), Shortage):
        return []
    return [
        f"{pick.kind}:{index}" for pick in _picks(need, host, unavailable, leased=unavailable) for index in pick.got
    ]


def allocate(need: Need, host: Host, unavailable: Taken, *, leased: Taken | None = None) -> Placement | Shortage:
    """Choose resources of a host for an attempt, or return what the host lacks. `leased`: the leases there, if they
    aren't what is unavailable."""
    if need.sandbox and (problem := sandboxes.problem(host)):
        return Shortage(problem)
    gpus = _gpus_of(host)
    if not (need.pinned or need.pinned_server) and len(gpus) < need.gpus + need.server_gpus:
        have, needed = _count(len(gpus), "GPU"), need.gpus + need.server_gpus
        return Shortage(f"host {host.name} has {have}, this run needs {needed}")
    picks = _picks(need, host, unavailable, leased=unavailable if leased is None else leased)
    short = next((pick.short for pick in picks if pick.short), None)
    if short:
        return short
    chosen, server, slots, ports, group = (pick.got for pick in picks)
    return Placement(
        host=host.name,
        gpus=chosen,
        server_gpus=server,
        cpu_slots=slots,
        ports=ports,
        group_port=group[0] if group else None,
        lora_kernels=_lora_kernels(host, server or chosen) if ports else "",
        unsandboxed=need.sandbox and sandboxes.sandbox_of(host).bare,
    )


def _lora_kernels(host: Host, gpus: tuple[int, ...]) -> str:
    """Find the host's vLLM version, if its LoRA kernels were tuned for all of these GPUs; otherwise ""."""
    names = {gpu["index"]: str(gpu.get("name") or "") for gpu in host.inventory.get("gpus") or []}
    folders = {adapters.kernels(names.get(index, ""), host.vllm) for index in gpus}
    folder = folders.pop() if len(folders) == 1 else None
    return folder.name if folder else ""


@dataclass(frozen=True)
class _Pick:
    """A choice of one kind of resource: what is free, and what is missing."""

    kind: str
    got: tuple[int, ...]
    short: Shortage | None = None


def _picks(need: Need, host: Host, unavailable: Taken, *, leased: Taken) -> list[_Pick]:
    """Choose the trainer's GPUs, the servers' GPUs, CPU slots, the servers' ports and NCCL's port, in this order."""
    gpus = _gpus_of(host)
    chosen = _choose("gpu", "GPU", gpus, need.pinned, need.gpus, host, unavailable, excluding=need.pinned_server)
    server = _choose("gpu", "GPU", gpus, need.pinned_server, need.server_gpus, host, unavailable, excluding=chosen.got)
    slots = range(int(host.inventory.get("cpu_slots") or 0))
    pool = _ports_of(host, leased) if need.ports or need.group_port else []
    fixed = () if need.first_port is None else tuple(range(need.first_port, need.first_port + need.ports))
    ports = _choose("port", "port", pool, fixed, need.ports, host, unavailable)
    return [
        chosen,
        server,
        _choose("cpu", "CPU slot", slots, (), need.cpu_slots, host, unavailable),
        ports,
        _choose("port", "port", pool, (), int(need.group_port), host, unavailable, excluding=ports.got),
    ]


def _choose(
    kind: str,
    word: str,
    pool: Sequence[int],
    pinned: tuple[int, ...],
    count: int,
    host: Host,
    unavailable: Taken,
    *,
    excluding: tuple[int, ...] = (),
) -> _Pick:
    """Choose `count` resources of one kind, pinned ones first; never any in `excluding`, which the run already has."""
    if pinned:
        # A port may be outside the host's range; a missing GPU is never available.
        absent = [index for index in pinned if kind != "port" and index not in pool]
        if absent:
            text = f"host {host.name} has no {word} {absent[0]}, which this run's profile names"
            return _Pick(kind, (), Shortage(text))
        free = tuple(index for index in pinned if f"{kind}:{index}" not in unavailable)
        missing = len(pinned) - len(free)
        return _Pick(kind, free, _waits(word, kind, pinned, unavailable, missing) if missing else None)
    if count <= 0:
        return _Pick(kind, ())
    usable = [index for index in pool if index not in excluding]
    if len(pool) - len(excluding) < count:
        text = f"host {host.name} has {_count(len(pool), word)}, this run needs {count + len(excluding)}"
        return _Pick(kind, (), Shortage(text))
    free = tuple(islice((index for index in usable if f"{kind}:{index}" not in unavailable), count))
    missing = count - len(free)
    return _Pick(kind, free, _waits(word, kind, usable, unavailable, missing) if missing else None)


def take(attempt: Attempt, host: Host, placement: Placement) -> None:
    """Insert all leases, inside the caller's transaction. IntegrityError: another dispatcher was first.

    Sorted, so that two dispatchers that want the same two resources can't deadlock.
    """
    names = sorted(resources(placement))
    Lease.objects.bulk_create([Lease(attempt=attempt, host=host, resource=name) for name in names])


def resources(placement: Placement) -> list[str]:
    ports = [*placement.ports, *([] if placement.group_port is None else [placement.group_port])]
    return [
        *(f"gpu:{index}" for index in placement.every_gpu),
        *(f"cpu:{index}" for index in placement.cpu_slots),
        *(f"port:{port}" for port in ports),
    ]


def settle(attempt: Attempt, receipt: Receipt | None, *, by: str, proved: bool = False) -> None:
    """Release an ended attempt's resources that are proved free, and quarantine the rest until an operator releases it.

    `proved`: the end needs no receipt, because nothing was started or the host has rebooted.
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
    """Release a quarantined lease at an operator's request. False: it was no longer in quarantine."""
    quarantined = Lease.objects.filter(pk=lease.pk, state=Lease.QUARANTINED)
    return bool(quarantined.update(state=Lease.RELEASED, released_at=timezone.now(), released_by=by))


def _gpus_of(host: Host) -> list[int]:
    """List the GPU indexes, the idle ones first."""
    gpus = host.inventory.get("gpus") or []
    return [int(gpu["index"]) for gpu in sorted(gpus, key=lambda g: ((g.get("used_mib") or 0) > BUSY_MIB, g["index"]))]


_PRECEDENCE = (Waits.KEPT, Waits.HELD, Waits.QUARANTINED)
"""The order in which messages name a holder: a quarantine, unlike the others, needs an operator to end it."""


def _ports_of(host: Host, leased: Taken) -> list[int]:
    """List the host's ports, except those that other programs use."""
    first, last = host.inventory.get("port_range") or DEFAULT_PORTS
    foreign = {port for port in host.inventory.get("listening") or () if f"port:{port}" not in leased}
    return [port for port in range(int(first), int(last) + 1) if port not in foreign]


def _waits(word: str, kind: str, pool: Sequence[int], unavailable: Taken, missing: int) -> Shortage:
    names = [f"{kind}:{index}" for index in sorted(pool) if f"{kind}:{index}" in unavailable]
    name = min(names, key=lambda name: _PRECEDENCE.index(unavailable[name].how))
    rest = f" and {missing - 1} more" if missing > 1 else ""
    return Shortage(f"waits for {word} {name.partition(':')[2]}{rest}", unavailable[name])


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
