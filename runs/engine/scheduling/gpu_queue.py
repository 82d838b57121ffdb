"""The queue: its order, and the capacity of the hosts that remains during a pass through it. A later run may overtake a
waiting run only if that can't delay the waiting run. So free resources that a waiting run needs are reserved for it on
each host where it could start once other runs have ended; runs behind it get the rest."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.catalogue.hardware.models import Host
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent
from runs.engine.scheduling import leasing, limits
from runs.engine.scheduling.leasing import Hold, Need, Shortage
from runs.engine.spec import spec_of
from runs.engine.states import RunStatus, Waits
from runs.engine.warm.idle import IdleServer, IdleServers
from workers.contract.run import gateway, jobs
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError

ORDER = ("-priority", "turn", "pk")
"""Columns that order the queue, in Django's notation; `key` and `position_of` derive from them."""


def queued_attempts() -> QuerySet[Attempt]:
    """List the queued attempts in the order in which they may start."""
    return Attempt.objects.filter(status=RunStatus.QUEUED).order_by(*ORDER)


def positions() -> dict[str, int]:
    """Map the ids of the queued attempts to their positions, from 1."""
    return {pk: position for position, pk in enumerate(queued_attempts().values_list("pk", flat=True), start=1)}


def position_of(attempt: Attempt) -> tuple[int, int]:
    """Return an attempt's position in the queue, from 1, and the queue's length."""
    is_ahead, is_tied = Q(), Q()
    for name in ORDER:
        column, lookup = (name[1:], "gt") if name[0] == "-" else (name, "lt")
        value = getattr(attempt, column)
        is_ahead |= is_tied & Q(**{f"{column}__{lookup}": value})
        is_tied &= Q(**{column: value})
    queue = Attempt.objects.filter(status=RunStatus.QUEUED)
    return queue.filter(is_ahead).count() + 1, queue.count()


def ordinal(position: int) -> str:
    """Format a position as `1st`, `2nd`, `3rd` or `11th`."""
    tens, units = divmod(position % 100, 10)
    return f"{position}{'th' if tens == 1 else {1: 'st', 2: 'nd', 3: 'rd'}.get(units, 'th')}"


def key(attempt: Attempt) -> tuple[Any, ...]:
    """Build a key that sorts attempts as ORDER does."""
    return tuple(-getattr(attempt, name[1:]) if name[0] == "-" else getattr(attempt, name) for name in ORDER)


def enqueue(
    run: Run,
    *,
    number: int,
    actor: str,
    kind: str,
    host: Host | None,
    priority: int,
    resume_from: str = "",
    resume_step: int = 0,
    data: Mapping[str, int] | None = None,
) -> Attempt:
    """Create a queued attempt, with an event of this kind in its timeline."""
    attempt = Attempt.objects.create(
        id=f"{run.pk}-{number}",
        run=run,
        number=number,
        host=host,
        priority=priority,
        resume_from=resume_from,
        resume_step=resume_step,
    )
    event_data = {"attempt": number, "step": resume_step, **(data or {})}
    RunEvent.objects.create(run=run, attempt=attempt, at=timezone.now(), kind=kind, actor=actor, data=event_data)
    return attempt


def need_of(run: Run) -> Need:
    spec = spec_of(run)
    if spec.kind not in jobs.KINDS:
        need = leasing.need_of(spec.hardware, spec.every_entry)
        return replace(need, ports=need.ports + gateway.ports_of(spec.episodes))
    need = leasing.need_of(spec.hardware)  # a job scores nothing
    return replace(need, ports=need.ports + jobs.ports_of(spec.kind, spec.job))


class Capacity:
    """The hosts' resources and their holders during one pass through the queue. Resources are only taken, never
    returned. What is released during the pass is left to the next pass, which the release starts; otherwise it would go
    to the next run in this pass instead of the first run that needs it."""

    def __init__(
        self, hosts: Iterable[Host], leases: Mapping[int, Mapping[str, Hold]], idle: IdleServers | None = None
    ) -> None:
        self.hosts = list(hosts)
        self.idle = idle or IdleServers()
        self.taken: defaultdict[int, dict[str, Hold]] = defaultdict(dict)
        self._add(leases)
        self._owners: dict[int, limits.Allowance] = {}
        self._groups: dict[int, int] = {}
        """Group id -> number of its runs on hosts."""

    @classmethod
    def read(cls) -> "Capacity":
        return cls(Host.objects.all(), leasing.leased(), IdleServers.read())

    def read_again(self) -> None:
        """Read the leases and idle servers again after another dispatcher took a resource first."""
        self._add(leasing.leased())
        self.idle = IdleServers.read()

    def find_for(self, attempt: Attempt) -> tuple[Host, Placement] | Shortage:
        """Find where an attempt can start now. Otherwise reserve the free resources it needs and return what it is
        waiting for. Raises ContractError for a spec that can't be read."""
        spec, need, host_id = spec_of(attempt.run), need_of(attempt.run), attempt.host_id or attempt.run.host_id
        hosts = [host for host in self.hosts if host_id in (None, host.pk)]
        result = self.find_with(need, spec.hardware, host_id, self.idle.for_run(attempt.run.owner_id, spec, hosts))
        if isinstance(result, Shortage):
            self.reserve(need, host_id, attempt.run)
        return result

    def find_with(
        self, need: Need, hardware: HardwareSpec, host_id: int | None, servers: Iterable[IdleServer] = ()
    ) -> tuple[Host, Placement] | Shortage:
        """Find where a run can start now, with one of these warm servers if it is still idle in this pass, or else with
        servers of its own. Otherwise return what the run is waiting for."""
        for server in servers:
            if server in self.idle:
                result = self.find(leasing.beside_a_server(need, hardware), server.host_id, keep=server)
                if not isinstance(result, Shortage):
                    return result[0], replace(result[1], warm=server.placement)
                if result.servers_to_end:
                    return result
        return self.find(need, host_id)

    def find(
        self, need: Need, host_id: int | None, *, keep: IdleServer | None = None
    ) -> tuple[Host, Placement] | Shortage:
        """Find where a run can start now; otherwise return what it is waiting for. `host_id` is None for any host.
        `keep` is an idle server that must not end to make room for the run."""
        shortages = []
        hosts = [host for host in self.hosts if host_id in (None, host.pk)]
        for host in hosts:
            problem = leasing.host_problem(host, timezone.now())
            result = Shortage(problem) if problem else leasing.allocate(need, host, self.taken[host.pk])
            if isinstance(result, Placement):
                return host, result
            result = replace(result, servers_to_end=() if problem else self._servers_to_end(need, host, keep))
            if result.hold and len(hosts) > 1:
                result = replace(result, text=f"{result.text} of {host.name}")
            shortages.append(result)
        # Prefer the host that could start it soonest: one where it is enough that a server or a run ends.
        return min(shortages, key=_wait_rank, default=Shortage("no host is known yet"))

    def _servers_to_end(self, need: Need, host: Host, keep: IdleServer | None) -> tuple[str, ...]:
        """List the idle warm servers of a host that must end to make room for a run, longest idle first; return () if
        ending them is not enough."""
        remaining_holds, server_ids = dict(self.taken[host.pk]), []
        for server in [server for server in self.idle.on(host) if server != keep]:
            remaining_holds = {name: hold for name, hold in remaining_holds.items() if hold.run_id != server.run_id}
            server_ids.append(server.placement.attempt_id)
            if isinstance(leasing.allocate(need, host, remaining_holds), Placement):
                return tuple(server_ids)
        return ()

    def reserve(self, need: Need, host_id: int | None, run: Run) -> None:
        """Reserve free resources for a waiting run, except on hosts that can't take launches, since nobody knows when
        they can again (leasing.resources_to_reserve covers similar cases)."""
        hold = Hold.of(run, Waits.KEPT)
        for host in self.hosts:
            if host_id in (None, host.pk) and not leasing.host_problem(host, timezone.now()):
                names = leasing.resources_to_reserve(need, host, self.taken[host.pk])
                self.taken[host.pk].update(dict.fromkeys(names, hold))

    def occupy(self, host: Host, placement: Placement, run: Run) -> None:
        hold = Hold.of(run, Waits.HELD)
        if placement.warm:
            self.idle.remove(placement.warm)
        self.taken[host.pk].update(dict.fromkeys(leasing.resources(placement), hold))
        if run.group_id in self._groups:
            self._groups[run.group_id] += 1
        if run.owner_id in self._owners:
            allowance = self._owners[run.owner_id]
            self._owners[run.owner_id] = replace(allowance, running=allowance.running + 1, queued=allowance.queued - 1)

    def over_limit(self, run: Run) -> Shortage | None:
        """Describe what a run is waiting for if its owner or its group has reached a limit; return None if neither has.
        Nothing is reserved for such a run, since runs behind it may have other owners and groups."""
        if run.group is not None and run.group.at_once:
            if run.group.pk not in self._groups:
                self._groups[run.group.pk] = limits.count_on_hosts(run.group)
            running_count = self._groups[run.group.pk]
            if running_count >= run.group.at_once:
                return Shortage(limits.group_wait(run.group, running_count))
        if not limits.max_running(run.owner):
            return None
        if run.owner_id not in self._owners:
            self._owners[run.owner_id] = limits.allowance(run.owner)
        allowance = self._owners[run.owner_id]
        return None if allowance.may_start else Shortage(allowance.wait)

    def walk(self, queue: Iterable[Attempt]) -> Iterator[tuple[Attempt, tuple[Host, Placement] | Shortage]]:
        """Simulate a pass of the dispatcher: yield each attempt with its placement or shortage. Attempts that could
        start take their resources here, but nothing is started."""
        for attempt in queue:
            try:
                result = self.over_limit(attempt.run) or self.find_for(attempt)
            except ContractError as error:
                # The dispatcher ends it.
                yield attempt, Shortage(f"its spec can't be read: {error}")
                continue
            if not isinstance(result, Shortage):
                self.occupy(*result, attempt.run)
            yield attempt, result

    def _add(self, leases: Mapping[int, Mapping[str, Hold]]) -> None:
        for host_id, holds in leases.items():
            self.taken[host_id].update(holds)


def capacity_behind(priority: int) -> tuple[Capacity, int]:
    """Return the capacity left for a new run of this priority, and the number of waiting runs ahead of it."""
    capacity = Capacity.read()
    queue = queued_attempts().filter(priority__gte=priority).select_related("run__owner", "run__group")
    return capacity, sum(isinstance(result, Shortage) for _, result in capacity.walk(queue))


def _wait_rank(shortage: Shortage) -> int:
    if shortage.servers_to_end:
        return -1
    if shortage.hold is None:
        return 2
    return int(shortage.hold.how == Waits.QUARANTINED)
