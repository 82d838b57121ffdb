"""The demand for machines: queued runs that no host can start, according to the scheduler's own rules. The queue is
walked as the dispatcher does. Requested machines count as hosts with the resources that they will announce, so that two
runs that fit on one machine request only one."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db.models import QuerySet

from controlplane.catalogue.hardware.models import Host
from controlplane.catalogue.hardware.sandboxes import sandbox_of
from controlplane.platform.templatetags.figures import about
from runs.engine.machines.models import KINDS, MachineRequest, MachineSource
from runs.engine.models import Attempt
from runs.engine.scheduling import gpu_queue, leasing
from runs.engine.scheduling.gpu_queue import Capacity
from runs.engine.scheduling.leasing import Need
from runs.engine.warm.idle import IdleServers
from workers.contract.run.spec import Placement
from workers.contract.wire.documents import ContractError

MAX_TRIES = 5
"""Number of requests to one source for one attempt, after which it gets none until its next save."""
FIRST_PAUSE, MAX_PAUSE = timedelta(minutes=1), timedelta(minutes=30)
ARRIVES_WITHIN = timedelta(hours=1)
"""Time limit from a machine's joining to its first announcement, since it may first build the trainer's environment."""
State = MachineRequest.State


@dataclass
class Demand:
    unmet: list[tuple[Attempt, MachineSource]] = field(default_factory=list)
    """Attempts that need a machine, each with the source to request it from."""
    used: set[int] = field(default_factory=set)
    """Ids of requests whose machine a queued run is going to use."""
    expectations: dict[str, str] = field(default_factory=dict)
    """Attempt id -> sentences on what the attempt can expect from the sources."""


def read(now: datetime) -> Demand:
    demand = Demand()
    market = _Market(now)
    for attempt in gpu_queue.queued_attempts().select_related("run__owner", "run__group", "host"):
        try:
            need = gpu_queue.need_of(attempt.run)
        except ContractError:
            continue  # the dispatcher ends it
        if market.capacity.over_limit(attempt.run) is not None:
            continue
        if market.starts(attempt) or (sources := market.sources_for(attempt)) is None:
            continue
        if (usable_request := market.take_requested(attempt, need, sources)) is not None:
            demand.used.add(usable_request.pk)
            demand.expectations[attempt.pk] = _expectation_text(attempt, usable_request)
            continue
        source, obstacles = market.choose(attempt, need, sources)
        if source is not None:
            demand.unmet.append((attempt, source))
        elif obstacles:
            demand.expectations[attempt.pk] = " ".join(obstacles)
    return demand


def offered_for(need: Need) -> list[MachineSource]:
    """List the enabled sources whose machines have these resources."""
    return [source for source in MachineSource.objects.filter(enabled=True) if _could_hold(source, need) is not None]


class _Market:
    """The hosts, the requested machines and the sources during one pass through the queue."""

    def __init__(self, now: datetime) -> None:
        self.now = now
        self._sources = list(MachineSource.objects.all())
        requests = MachineRequest.objects.filter(state__in=MachineRequest.LIVE).select_related("source", "attempt__run")
        self._live = list(requests.order_by("created_at"))
        hosts = {host.name: host for host in Host.objects.all()}
        self._future = {request: _machine(request, now) for request in self._live if not self._has_host(request, hosts)}
        for request in self._future:
            hosts.pop(request.host_name, None)
        self.capacity = Capacity(hosts.values(), leasing.leased(), IdleServers.read())

    def sources_for(self, attempt: Attempt) -> list[MachineSource] | None:
        """List the sources whose machines may run the attempt; return None if it can only run on an existing host."""
        if attempt.run.host_id is not None:
            return None
        if attempt.host is None:
            return self._sources
        # Its checkpoint is on one host. If that was a machine on demand, others may share the same folder.
        if (origin := ended_machine(attempt.host)) is None:
            return None
        kind = KINDS.get(origin.source.kind)
        return [origin.source] if kind is not None and kind.shares_runs else []

    def starts(self, attempt: Attempt) -> bool:
        """Return whether an existing host can start the attempt, now or once idle warm servers have ended. Take or
        reserve resources as the dispatcher does."""
        result = self.capacity.find_for(attempt)
        if isinstance(result, tuple):
            self.capacity.occupy(*result, attempt.run)
            return True
        return bool(result.servers_to_end)

    def take_requested(self, attempt: Attempt, need: Need, sources: list[MachineSource]) -> MachineRequest | None:
        """Find a requested machine that has room for the attempt besides the attempts ahead of it, and take the
        machine's resources. Return None if there is none."""
        for request, machine in self._future.items():
            if request.source in sources:
                placement = leasing.allocate(need, machine, self.capacity.taken[-request.pk])
                if isinstance(placement, Placement):
                    self.capacity.occupy(machine, placement, attempt.run)
                    return request
        return None

    def choose(
        self, attempt: Attempt, need: Need, sources: list[MachineSource]
    ) -> tuple[MachineSource | None, list[str]]:
        """Choose the first source from which a machine can be requested now, and count that machine as requested.
        Otherwise return None with an explanation for each suitable source."""
        obstacles = []
        for source in sources:
            placement = _could_hold(source, need)
            if not source.enabled or placement is None:
                continue
            if obstacle := self._obstacle(attempt, need, source):
                obstacles.append(obstacle)
                continue
            self._count_as_requested(attempt, source, placement)
            return source, []
        if not sources and attempt.host is not None:
            obstacles.append(f"Its last checkpoint is on {attempt.host.name}, which has left.")
        return None, obstacles

    def _count_as_requested(self, attempt: Attempt, source: MachineSource, placement: Placement) -> None:
        request = MachineRequest(pk=10**9 + len(self._live), source=source, attempt=attempt, host_name=source.name)
        request.offers = source.inventory()
        self._live.append(request)
        self._future[request] = _machine(request, self.now)
        self.capacity.occupy(self._future[request], placement, attempt.run)

    def _obstacle(self, attempt: Attempt, need: Need, source: MachineSource) -> str:
        count = sum(request.source_id == source.pk for request in self._live)
        if count >= source.most:
            if source.most == 1:
                return f"The only machine of {source.name} is in use."
            return f"All {source.most} machines of {source.name} are in use."
        patience = attempt.created_at + timedelta(minutes=source.patience_minutes) - self.now
        # A reachable host could run it once other runs have ended.
        able_hosts = (host for host in self.capacity.hosts if not leasing.host_problem(host, self.now))
        fits_later = any(isinstance(leasing.allocate(need, host, {}), Placement) for host in able_hosts)
        if patience > timedelta(0) and fits_later:
            wait = about(patience.total_seconds())
            return f"A machine from {source.name} will be requested in {wait} if the run is still waiting."
        return self._failures(attempt, source)

    def _failures(self, attempt: Attempt, source: MachineSource) -> str:
        """Explain why a source's failures since its last save prevent or delay the next request, or return ""."""
        requests = source.requests.exclude(state__in=MachineRequest.PENDING).filter(created_at__gte=source.changed_at)
        tries = requests.filter(attempt=attempt).count()
        streak = list(_streak(requests))
        failure = f" The last failure: {streak[0].sentence}" if streak else ""
        if tries >= MAX_TRIES:
            advice = f"To retry, save {source.name} again."
            return f"{tries} requests to {source.name} for this run failed.{failure} {advice}"
        if not streak or streak[0].ended_at is None:
            return ""
        pause = min(FIRST_PAUSE * 2 ** (len(streak) - 1), MAX_PAUSE)
        pause_left = streak[0].ended_at + pause - self.now
        if pause_left <= timedelta(0):
            return ""
        count = "A machine" if len(streak) == 1 else f"{len(streak)} machines"
        return (
            f"{count} from {source.name} failed to start.{failure} Next attempt in {about(pause_left.total_seconds())}."
        )

    def _has_host(self, request: MachineRequest, hosts: dict[str, Host]) -> bool:
        """Return whether the scheduler uses the machine's own host instead of the expected resources: the host
        announces them, is draining, or has been silent for too long since it joined."""
        if request.state != State.JOINED:
            return False
        host = hosts.get(request.host_name)
        if host is None or (host.is_fresh(self.now) and sandbox_of(host).reported) or host.draining:
            return True
        return request.joined_at is None or self.now - request.joined_at > ARRIVES_WITHIN


def _could_hold(source: MachineSource, need: Need) -> Placement | None:
    placement = leasing.allocate(need, Host(pk=0, name=source.name, inventory=source.inventory()), {})
    return placement if isinstance(placement, Placement) else None


def ended_machine(host: Host) -> MachineRequest | None:
    """Find the request of a machine on demand that was this host and has ended; return None if there is none."""
    ended_requests = MachineRequest.objects.exclude(state__in=MachineRequest.LIVE).filter(host_name=host.name)
    return ended_requests.select_related("source").first()


def _machine(request: MachineRequest, now: datetime) -> Host:
    """Build the host that a request will become. The id is negative, since the host is not stored."""
    return Host(pk=-request.pk, name=request.host_name, inventory=request.offers, announced_at=now)


def _expectation_text(attempt: Attempt, request: MachineRequest) -> str:
    sharing_note = "" if request.attempt_id in (None, attempt.pk) else ", to be shared with another run"
    if request.state == State.JOINED:
        return f"{request.host_name} from {request.source.name} has joined and is getting ready{sharing_note}."
    sentence = f" {request.sentence}" if request.sentence else ""
    return f"A machine from {request.source.name} has been requested{sharing_note}.{sentence}"


def _streak(ended_requests: QuerySet[MachineRequest]) -> Iterator[MachineRequest]:
    """Yield the newest consecutive failed requests, newest first."""
    for request in ended_requests.order_by("-created_at", "-pk")[: MAX_TRIES + 5]:
        if request.state != State.FAILED:
            return
        yield request
