"""Resources of hosts: what an attempt needs, what is free, leasing all of it at once, and releasing it. A partial
unique constraint on (host, resource) is the lock: one of two dispatchers gets an IntegrityError."""

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
"""MiB in use above which an unleased GPU counts as busy with another program and is chosen last."""
DEFAULT_PORTS = (21000, 21999)


@dataclass(frozen=True)
class Need:
    gpus: int
    server_gpus: int
    cpu_slots: int
    ports: int
    pinned: tuple[int, ...] = ()
    """GPUs that the profile pins for the trainer; () for any."""
    pinned_server: tuple[int, ...] = ()
    first_port: int | None = None
    """The servers' first port, if the profile sets it."""
    group_port: bool = False
    """True if one more port is needed, for NCCL's group."""
    sandbox: bool = False
    """True if rewards or parts of the environment run code."""


@dataclass(frozen=True)
class Hold:
    """A run's claim on a resource, which makes the resource unavailable to other runs."""

    how: Waits
    run_id: str
    run_name: str
    owner: str

    @classmethod
    def of(cls, run: Run, wait: Waits) -> "Hold":
        return cls(wait, run.pk, run.name, run.owner.get_username())


Unavailable = Mapping[str, Hold]
"""Unavailable resources of one host and their holds, by name as in a lease, such as `gpu:0`."""


@dataclass(frozen=True)
class Shortage:
    """A lack of resources on a host, temporary or not; `text` says what the run is waiting for."""

    text: str
    hold: Hold | None = None
    """The hold on a missing resource; of several, the most informative one."""
    servers_to_end: tuple[str, ...] = ()
    """Ids of the attempts of idle warm servers that only need to end to make room."""


def need_of(hardware: HardwareSpec, entries: Iterable[RewardSpec | PartSpec] = ()) -> Need:
    """Sum the resources that a run needs. `entries` are its rewards and the parts of its environment."""
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
    """Return what a run still needs if its servers are already running."""
    count = hardware.vllm_server.count if hardware.vllm_server else 0
    return replace(need, server_gpus=0, ports=need.ports - count, pinned_server=(), first_port=None)


def host_problem(host: Host, now: datetime) -> str:
    """Explain why launches can't go to a host, or return "" if they can."""
    if host.draining:
        return f"host {host.name} is draining"
    if not host.is_fresh(now):
        return f"host {host.name} has not announced itself recently, so launches can't reach it"
    return ""


def leased() -> defaultdict[int, dict[str, Hold]]:
    """Return the holds on all leased resources, by host id."""
    by_host: defaultdict[int, dict[str, Hold]] = defaultdict(dict)
    columns = ("host_id", "resource", "state", "attempt__run_id", "attempt__run__name", "attempt__run__owner__username")
    for host_id, resource, state, *run in Lease.objects.filter(ACTIVE).values_list(*columns):
        by_host[host_id][resource] = Hold(Waits(state), *run)
    return by_host


def resources_to_reserve(need: Need, host: Host, unavailable: Unavailable) -> list[str]:
    """List the free resources of the host that should be reserved for a waiting attempt. The list is empty for a host
    where the attempt could not start even after every run there had ended, because what it lacks is in quarantine or
    missing. Only an operator can change that, which may take days, and one broken GPU must not block a whole host."""
    quarantined_holds = {name: hold for name, hold in unavailable.items() if hold.how == Waits.QUARANTINED}
    if isinstance(allocate(need, host, quarantined_holds, leased=unavailable), Shortage):
        return []
    return [
        f"{pick.kind}:{index}" for pick in _picks(need, host, unavailable, leased=unavailable) for index in pick.indexes
    ]


def allocate(
    need: Need, host: Host, unavailable: Unavailable, *, leased: Unavailable | None = None
) -> Placement | Shortage:
    """Choose resources of a host for an attempt, or return what the host lacks. `leased` are the host's leases, by
    default the same as `unavailable`."""
    if need.sandbox and (problem := sandboxes.problem(host)):
        return Shortage(problem)
    gpus = _gpus_of(host)
    if not (need.pinned or need.pinned_server) and len(gpus) < need.gpus + need.server_gpus:
        availability, needed_count = _count(len(gpus), "GPU"), need.gpus + need.server_gpus
        return Shortage(f"host {host.name} has {availability}; this run needs {needed_count}")
    picks = _picks(need, host, unavailable, leased=unavailable if leased is None else leased)
    shortage = next((pick.shortage for pick in picks if pick.shortage), None)
    if shortage:
        return shortage
    trainer_gpus, server_gpus, slots, ports, group = (pick.indexes for pick in picks)
    return Placement(
        host=host.name,
        gpus=trainer_gpus,
        server_gpus=server_gpus,
        cpu_slots=slots,
        ports=ports,
        group_port=group[0] if group else None,
        lora_kernels=_lora_kernels(host, server_gpus or trainer_gpus) if ports else "",
        unsandboxed=need.sandbox and sandboxes.sandbox_of(host).bare,
    )


def _lora_kernels(host: Host, gpus: tuple[int, ...]) -> str:
    """Return the name of the LoRA kernels tuned for the host's vLLM version and these GPUs, or "" if there are none."""
    names = {gpu["index"]: str(gpu.get("name") or "") for gpu in host.inventory.get("gpus") or []}
    folders = {adapters.kernels(names.get(index, ""), host.vllm) for index in gpus}
    folder = folders.pop() if len(folders) == 1 else None
    return folder.name if folder else ""


@dataclass(frozen=True)
class _Pick:
    """The chosen resources of one kind, and the shortage if there are too few."""

    kind: str
    indexes: tuple[int, ...]
    shortage: Shortage | None = None


def _picks(need: Need, host: Host, unavailable: Unavailable, *, leased: Unavailable) -> list[_Pick]:
    """Choose, in this order, the trainer's GPUs, the servers' GPUs, CPU slots, the servers' ports and NCCL's port."""
    gpus = _gpus_of(host)
    trainer = _choose("gpu", "GPU", gpus, need.pinned, need.gpus, host, unavailable, excluding=need.pinned_server)
    server = _choose(
        "gpu", "GPU", gpus, need.pinned_server, need.server_gpus, host, unavailable, excluding=trainer.indexes
    )
    slots = range(int(host.inventory.get("cpu_slots") or 0))
    pool = _ports_of(host, leased) if need.ports or need.group_port else []
    pinned_ports = () if need.first_port is None else tuple(range(need.first_port, need.first_port + need.ports))
    ports = _choose("port", "port", pool, pinned_ports, need.ports, host, unavailable)
    return [
        trainer,
        server,
        _choose("cpu", "CPU slot", slots, (), need.cpu_slots, host, unavailable),
        ports,
        _choose("port", "port", pool, (), int(need.group_port), host, unavailable, excluding=ports.indexes),
    ]


def _choose(
    kind: str,
    word: str,
    pool: Sequence[int],
    pinned: tuple[int, ...],
    count: int,
    host: Host,
    unavailable: Unavailable,
    *,
    excluding: tuple[int, ...] = (),
) -> _Pick:
    """Choose the pinned resources of one kind, or else any `count` of them except those in `excluding`, which the run
    already has."""
    if pinned:
        # A port may be outside the host's range; a missing GPU is never available.
        absent_indexes = [index for index in pinned if kind != "port" and index not in pool]
        if absent_indexes:
            text = f"host {host.name} has no {word} {absent_indexes[0]}, which this run's profile requires"
            return _Pick(kind, (), Shortage(text))
        indexes = tuple(index for index in pinned if f"{kind}:{index}" not in unavailable)
        missing = len(pinned) - len(indexes)
        return _Pick(kind, indexes, _shortage(word, kind, pinned, unavailable, missing) if missing else None)
    if count <= 0:
        return _Pick(kind, ())
    candidates = [index for index in pool if index not in excluding]
    if len(pool) - len(excluding) < count:
        text = f"host {host.name} has {_count(len(pool), word)}; this run needs {count + len(excluding)}"
        return _Pick(kind, (), Shortage(text))
    indexes = tuple(islice((index for index in candidates if f"{kind}:{index}" not in unavailable), count))
    missing = count - len(indexes)
    return _Pick(kind, indexes, _shortage(word, kind, candidates, unavailable, missing) if missing else None)


def insert_leases(attempt: Attempt, host: Host, placement: Placement) -> None:
    """Insert all leases of a placement, inside the caller's transaction. Raises IntegrityError if another dispatcher
    was first. They are sorted, so that two dispatchers that want the same two resources can't deadlock.
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


def release_or_quarantine(attempt: Attempt, receipt: Receipt | None, *, by: str, proved: bool = False) -> None:
    """Release an ended attempt's resources that are proved free, and quarantine the rest until an operator releases
    them. With `proved`, no receipt is needed, because nothing was started or the host has rebooted."""
    leases = Lease.objects.filter(ACTIVE, attempt=attempt)
    if not (proved or (receipt is not None and receipt.free)):
        leases.filter(state=Lease.HELD).update(state=Lease.QUARANTINED)
        return
    if receipt is not None and receipt.port_free is False and not proved:
        leases.filter(resource__startswith="port:", state=Lease.HELD).update(state=Lease.QUARANTINED)
        leases = leases.exclude(resource__startswith="port:")
    leases.update(state=Lease.RELEASED, released_at=timezone.now(), released_by=by)


def release(lease: Lease, *, by: str) -> bool:
    """Release a quarantined lease, and return whether it was still in quarantine."""
    quarantined_lease = Lease.objects.filter(pk=lease.pk, state=Lease.QUARANTINED)
    return bool(quarantined_lease.update(state=Lease.RELEASED, released_at=timezone.now(), released_by=by))


def _gpus_of(host: Host) -> list[int]:
    """List the indexes of a host's GPUs, idle ones first."""
    gpus = host.inventory.get("gpus") or []
    return [int(gpu["index"]) for gpu in sorted(gpus, key=lambda g: ((g.get("used_mib") or 0) > BUSY_MIB, g["index"]))]


_PRECEDENCE = (Waits.KEPT, Waits.HELD, Waits.QUARANTINED)
"""Order in which messages prefer a holder. A quarantine comes last, since only an operator can end it."""


def _ports_of(host: Host, leased: Unavailable) -> list[int]:
    """List the host's ports except those that other programs use."""
    first_port, last_port = host.inventory.get("port_range") or DEFAULT_PORTS
    foreign = {port for port in host.inventory.get("listening") or () if f"port:{port}" not in leased}
    return [port for port in range(int(first_port), int(last_port) + 1) if port not in foreign]


def _shortage(word: str, kind: str, pool: Sequence[int], unavailable: Unavailable, missing_count: int) -> Shortage:
    names = [f"{kind}:{index}" for index in sorted(pool) if f"{kind}:{index}" in unavailable]
    name = min(names, key=lambda name: _PRECEDENCE.index(unavailable[name].how))
    remainder = f" and {missing_count - 1} more" if missing_count > 1 else ""
    return Shortage(f"waits for {word} {name.partition(':')[2]}{remainder}", unavailable[name])


def _count(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
