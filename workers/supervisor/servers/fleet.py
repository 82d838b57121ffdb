"""All vLLM servers of an attempt: its own are started, verified, watched and ended; attached ones are only polled."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from workers.contract.run import gateway, jobs
from workers.contract.run.spec import AttemptSpec, ServerPlace
from workers.contract.stack.commands import served_name
from workers.settings import HostSettings
from workers.supervisor.processes import listening
from workers.supervisor.processes.child import ChildExit
from workers.supervisor.processes.loops import Loop
from workers.supervisor.servers.servermetrics import Pulse
from workers.supervisor.servers.vllm import REQUEST_TIMEOUT_S, HealthProbe
from workers.supervisor.servers.warmth import WarmLease

PROBE_S = 0.5


class ServerState(NamedTuple):
    """A server's state during a hang."""

    role: str
    unanswered_s: float
    """Seconds without an answer; 0 if it answers."""
    running: int
    """Requests that it works on."""
    waiting: int
    still_s: float
    """Seconds with requests but without a generated token."""


class ServerFleet:
    def __init__(
        self,
        spec: AttemptSpec,
        settings: HostSettings,
        places: tuple[ServerPlace, ...],
        *,
        tree: Callable[[], set[int]],
    ) -> None:
        self.places = places
        warm = spec.placement.warm
        self.lease = WarmLease(warm, settings) if warm else None
        """The warm servers that are used in place of own ones."""
        self._group_port = spec.placement.group_port
        own = sum(place.own for place in places)
        listens = jobs.ports_of(spec.run.kind, spec.run.job) + gateway.ports_of(spec.run.episodes)
        self._trainer_ports = spec.placement.ports[own : own + listens]
        self._timeout_s = spec.run.hardware.server.ready_timeout_s if spec.run.hardware.server else 0
        self._settings = settings
        interval_s = min(PROBE_S, settings.sample_s)
        self._probes = [
            HealthProbe(
                place,
                served_name(spec, place),
                tree=self.lease.tree if self.lease else tree,
                has_ended=self.lease.has_ended if self.lease else lambda: False,
                interval_s=interval_s,
                watch_s=settings.attached_watch_s,
                timeout_s=min(REQUEST_TIMEOUT_S, settings.server_silence_s),
            )
            for place in places
        ]
        self.pulses: Sequence[Pulse] = ()
        """One for each place, once figures are sampled."""
        self._loops: list[Loop] = []
        self._deadline = float("inf")

    @property
    def own(self) -> tuple[ServerPlace, ...]:
        return tuple(place for place in self.places if place.own)

    @property
    def attached(self) -> tuple[ServerPlace, ...]:
        return tuple(place for place in self.places if not place.own)

    @property
    def ports(self) -> tuple[int, ...]:
        """The leased ports of the own servers, of a listening trainer (a job, a gateway), and of weight updates."""
        group = () if self._group_port is None or not self.places else (self._group_port,)
        return (*(place.port for place in self.own), *self._trainer_ports, *group)

    @property
    def addresses(self) -> list[str]:
        return [place.address for place in self.places]

    def port_in_use(self) -> int | None:
        """Return a leased port on which another process listens."""
        return next((port for port in self.ports if not listening.port_is_free(port)), None)

    def probe(self, now: float) -> None:
        """Start polling, once the processes are started."""
        self._deadline = now + self._timeout_s
        self._loops = [Loop(f"{probe.place.role}-health", probe.tick) for probe in self._probes]
        for loop in self._loops:
            loop.start()

    def ready(self) -> int:
        """Return how many servers are ready and, for own ones, verified to be ours."""
        return sum(probe.ready for probe in self._probes)

    def late(self, now: float) -> str:
        """Describe the servers that missed their deadline; "" before the deadline."""
        if now < self._deadline:
            return ""
        return " ".join(f"{self._prefix(probe.place)}{probe.seen}" for probe in self._probes if not probe.ready)

    def first_exit(self, exits: Mapping[str, ChildExit]) -> ChildExit | None:
        roles = {place.role for place in self.own}
        return next((exit_ for role, exit_ in exits.items() if role in roles), None)

    def look_again(self) -> None:
        """Probe again at once, after a failure that a server may have caused."""
        for loop in self._loops:
            loop.wake()

    def lost(self, *, after_s: float) -> str:
        """Describe the warm server that has ended, or the attached one that was unreachable for this long; or "". The
        end of its process can't be seen here, and a trainer may wait for its answer forever."""
        for probe in self._probes:
            if self.lease and probe.ended:
                return f"The warm server {self.lease.attempt_id}, which the run used, has ended. {probe.seen}"
            silent = probe.silent_since is not None and probe.silence() >= after_s
            if not probe.place.own and silent:
                where = f"The attached vLLM server {probe.place.address} no longer answers."
                return f"{where} {probe.seen}"
        return ""

    def hung(self, *, heard_at: float, after_s: float) -> str:
        """Describe a live server that has served nothing for this long while the trainer was silent too; or "". TRL's
        client would wait for its answer forever."""
        for probe, pulse in zip(self._probes, self.pulses, strict=False):
            unanswered, still = probe.silence(after=heard_at), pulse.silence(after=heard_at)
            if max(unanswered, still) < after_s:
                continue
            name = f"The vLLM server {probe.place.role} at {probe.place.address}"
            seconds = max(unanswered, still)
            since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
            requests = f"Requests: {pulse.running} running, {pulse.waiting} waiting."
            if unanswered >= after_s:
                return f"{name} has not answered since {since}, for {seconds:.0f} s. {probe.seen} {requests}"
            return f"{name} answers, but has generated no token since {since}, for {seconds:.0f} s. {requests}"
        return ""

    def states(self, *, heard_at: float) -> list[ServerState]:
        """Return the servers' states. `heard_at`: when the trainer's last line was read."""
        return [
            ServerState(
                probe.place.role,
                probe.silence(after=heard_at),
                pulse.running,
                pulse.waiting,
                pulse.silence(after=heard_at),
            )
            for probe, pulse in zip(self._probes, self.pulses, strict=False)
        ]

    def close(self) -> None:
        for loop in self._loops:
            loop.stop()

    def _prefix(self, place: ServerPlace) -> str:
        if not place.own:
            return f"{place.address}: "
        return f"{place.role}: " if len(self.places) > 1 else ""
