"""Which queued runs a machine is asked for: those that no host can start, by the scheduler's own rule of what fits.

The queue is gone through as the dispatcher does it. Machines that are on their way count as hosts by what they will
announce, so that two runs that fit on one ask for one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import QuerySet

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.sandboxes import sandbox_of
from controlplane.platform.templatetags.figures import about
from runs.engine.machines.models import KINDS, MachineRequest, MachineSource
from runs.engine.models import Attempt
from runs.engine.scheduling import leasing, queueing
from runs.engine.scheduling.leasing import Need
from runs.engine.scheduling.queueing import Capacity
from runs.engine.warm.idle import IdleServers
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError

TRIES = 5
"""Machines of one source for one attempt, before it is given up."""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=1), timedelta(minutes=30)
ARRIVES_WITHIN = timedelta(hours=1)
"""After it has joined, a machine may still build the trainer's environment before it announces itself."""
State = MachineRequest.State


@dataclass(frozen=True)
class MachineDemand:
    attempt: Attempt
    source: MachineSource


@dataclass
class Demand:
    wishes: list[MachineDemand] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    """Ids of requests whose machine some queued run is going to use."""
    says: dict[str, str] = field(default_factory=dict)
    """Attempt -> what it may expect of the sources."""


def read(now: datetime) -> Demand:
    demand = Demand()
    market = _Market(now)
    for attempt in queueing.waiting().select_related("run__owner", "run__group", "host"):
        try:
            need = queueing.need_of(attempt.run)
        except ContractError:
            continue  # the dispatcher ends it
        if market.capacity.over_limit(attempt.run) is not None:
            continue
        if market.starts(attempt, need) or (only := market.sources_for(attempt)) is None:
            continue
        coming = market.coming(attempt, need, only)
        if coming is not None:
            demand.used.add(coming.pk)
            demand.says[attempt.pk] = _expected(attempt, coming)
            continue
        source, obstacles = market.choose(attempt, need, only)
        if source is not None:
            demand.wishes.append(MachineDemand(attempt, source))
        elif obstacles:
            demand.says[attempt.pk] = " ".join(obstacles)
    return demand


def offered_for(need: Need) -> list[MachineSource]:
    """The sources whose machines have room for it."""
    return [source for source in MachineSource.objects.filter(enabled=True) if _could_hold(source, need) is not None]


class _Market:
    """Hosts, machines on their way, and sources, during one pass through the queue."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._sources = list(MachineSource.objects.all())
        live = MachineRequest.objects.filter(state__in=MachineRequest.LIVE).select_related("source", "attempt__run")
        self._live = list(live.order_by("created_at"))
        hosts = {host.name: host for host in Host.objects.all()}
        self._coming = {one: _machine(one, now) for one in self._live if not self._arrived(one, hosts)}
        for one in self._coming:
            hosts.pop(one.host_name, None)
        self.capacity = Capacity(hosts.values(), leasing.held(), IdleServers.read())

    def sources_for(self, attempt: Attempt) -> list[MachineSource] | None:
        """The sources whose machines could run it at all. None: it can only run on a host that is known."""
        if attempt.run.host_id is not None:
            return None
        if attempt.host is None:
            return self._sources
        # Its checkpoint is on one host. If that was a machine, others may see the same folder.
        if (origin := machine_that_went(attempt.host)) is None:
            return None
        return [origin.source] if _kind_shares(origin.source) else []

    def starts(self, attempt: Attempt, need: Need) -> bool:
        """Whether a host can start it now; else what is free is kept for it, as the dispatcher does."""
        found = self.capacity.find_for(attempt)
        if isinstance(found, tuple):
            self.capacity.take(*found, attempt.run)
            return True
        return bool(found.gives_way)

    def coming(self, attempt: Attempt, need: Need, only: list[MachineSource]) -> MachineRequest | None:
        """A machine on its way that the attempt fits on, beside those before it."""
        for request, machine in self._coming.items():
            if request.source in only:
                placed = leasing.place(need, machine, self.capacity.taken[-request.pk])
                if isinstance(placed, Placement):
                    self.capacity.take(machine, placed, attempt.run)
                    return request
        return None

    def choose(self, attempt: Attempt, need: Need, only: list[MachineSource]) -> tuple[MachineSource | None, list[str]]:
        """The first source that may be asked now, or why each that fits may not."""
        obstacles = []
        for source in only:
            placed = _could_hold(source, need)
            if not source.enabled or placed is None:
                continue
            if obstacle := self._obstacle(attempt, need, source):
                obstacles.append(obstacle)
                continue
            self._promise(attempt, source, placed)
            return source, []
        if not only and attempt.host is not None:
            obstacles.append(f"Its last checkpoint was on {attempt.host.name}, which has left.")
        return None, obstacles

    def _promise(self, attempt: Attempt, source: MachineSource, placed: Placement) -> None:
        """Count the machine as on its way, for the runs behind."""
        request = MachineRequest(pk=10**9 + len(self._live), source=source, attempt=attempt, host_name=source.name)
        request.offers = source.inventory()
        self._live.append(request)
        self._coming[request] = _machine(request, self.now)
        self.capacity.take(self._coming[request], placed, attempt.run)

    def _obstacle(self, attempt: Attempt, need: Need, source: MachineSource) -> str:
        there = sum(one.source_id == source.pk for one in self._live)
        if there >= source.most:
            machines = "its machine" if source.most == 1 else f"all its {source.most} machines"
            return f"{source.name} has given {machines}."
        if self._frees_itself(need) and (left := self._patience_left(attempt, source)):
            return f"A machine of {source.name} is asked for in {about(left.total_seconds())}, if it still waits."
        return self._failures(attempt, source)

    def _frees_itself(self, need: Need) -> bool:
        """Whether a host in reach could take it once other runs have ended."""
        able = (host for host in self.capacity.hosts if not leasing.host_problem(host, self.now))
        return any(isinstance(leasing.place(need, host, {}), Placement) for host in able)

    def _patience_left(self, attempt: Attempt, source: MachineSource) -> timedelta | None:
        left = attempt.created_at + timedelta(minutes=source.patience_minutes) - self.now
        return left if left > timedelta(0) else None

    def _failures(self, attempt: Attempt, source: MachineSource) -> str:
        """Why a source that gave no machine is not asked now, or "". Saving the source starts anew."""
        asked = source.requests.exclude(state__in=MachineRequest.PENDING).filter(created_at__gte=source.changed_at)
        for_it = asked.filter(attempt=attempt).count()
        streak = list(_streak(asked))
        last = f" The last: {streak[0].sentence}" if streak else ""
        if for_it >= TRIES:
            again = f"Save {source.name} again to have it tried anew."
            return f"{source.name} was asked {for_it} times for this run, and it still waits.{last} {again}"
        if not streak or streak[0].ended_at is None:
            return ""
        pause = min(FIRST_PAUSE * 2 ** (len(streak) - 1), LONGEST_PAUSE)
        left = streak[0].ended_at + pause - self.now
        if left <= timedelta(0):
            return ""
        count = "A machine" if len(streak) == 1 else f"{len(streak)} machines"
        return f"{count} of {source.name} did not come.{last} It is asked again in {about(left.total_seconds())}."

    def _arrived(self, request: MachineRequest, hosts: dict[str, Host]) -> bool:
        """Whether its host counts by what it says of itself."""
        if request.state != State.JOINED:
            return False
        host = hosts.get(request.host_name)
        if host is None or (host.is_fresh(self.now) and sandbox_of(host).known) or host.draining:
            return True
        return request.joined_at is None or self.now - request.joined_at > ARRIVES_WITHIN


def _could_hold(source: MachineSource, need: Need) -> Placement | None:
    placed = leasing.place(need, Host(pk=0, name=source.name, inventory=source.inventory()), {})
    return placed if isinstance(placed, Placement) else None


def machine_that_went(host: Host) -> MachineRequest | None:
    """The request by which a host came that is no more."""
    gone = MachineRequest.objects.exclude(state__in=MachineRequest.LIVE).filter(host_name=host.name)
    return gone.select_related("source").first()


def _machine(request: MachineRequest, now: datetime) -> Host:
    """As it will announce itself. Negative ids: it is in no table."""
    return Host(pk=-request.pk, name=request.host_name, inventory=request.offers, announced_at=now)


def _kind_shares(source: MachineSource) -> bool:
    return source.kind in KINDS and KINDS[source.kind].shares_runs


def _expected(attempt: Attempt, request: MachineRequest) -> str:
    whose = "" if request.attempt_id in (None, attempt.pk) else ", with another run"
    if request.state == State.JOINED:
        return f"{request.host_name} of {request.source.name} has joined and gets ready{whose}."
    said = f" {request.sentence}" if request.sentence else ""
    return f"A machine of {request.source.name} is asked for{whose}.{said}"


def _streak(asked: QuerySet[MachineRequest]) -> Iterator[MachineRequest]:
    """The newest requests, as long as they failed."""
    for request in asked.order_by("-created_at", "-pk")[: TRIES + 5]:
        if request.state != State.FAILED:
            return
        yield request
