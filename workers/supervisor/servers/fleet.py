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
    role: str
    unanswered_s: float
    """Seconds without a response; 0 if the server is responding."""
    running: int
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
        """Lease of the warm server that is used instead of own servers, if any."""
        self._group_port = spec.placement.group_port
        own_count = sum(place.own for place in places)
        trainer_count = jobs.ports_of(spec.run.kind, spec.run.job) + gateway.ports_of(spec.run.episodes)
        self._trainer_ports = spec.placement.ports[own_count : own_count + trainer_count]
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
        """One pulse for each place, once metrics are sampled."""
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
        """The leased ports: of the own servers, a listening trainer (a job, a gateway), and weight updates."""
        group = () if self._group_port is None or not self.places else (self._group_port,)
        return (*(place.port for place in self.own), *self._trainer_ports, *group)

    @property
    def addresses(self) -> list[str]:
        return [place.address for place in self.places]

    def port_in_use(self) -> int | None:
        """Return a leased port on which another process is listening, or None."""
        return next((port for port in self.ports if not listening.port_is_free(port)), None)

    def probe(self, now: float) -> None:
        """Start polling. Called once the processes have been started."""
        self._deadline = now + self._timeout_s
        self._loops = [Loop(f"{probe.place.role}-health", probe.tick) for probe in self._probes]
        for loop in self._loops:
            loop.start()

    def ready(self) -> int:
        """Return how many servers are ready; own servers count only once verified as belonging to this attempt."""
        return sum(probe.ready for probe in self._probes)

    def describe_late(self, now: float) -> str:
        """Describe the servers that missed their deadline; return "" before the deadline."""
        if now < self._deadline:
            return ""
        return " ".join(f"{self._prefix(probe.place)}{probe.seen}" for probe in self._probes if not probe.ready)

    def first_exit(self, exits: Mapping[str, ChildExit]) -> ChildExit | None:
        roles = {place.role for place in self.own}
        return next((exit_ for role, exit_ in exits.items() if role in roles), None)

    def probe_now(self) -> None:
        """Probe the servers immediately, after a failure that one of them may have caused."""
        for loop in self._loops:
            loop.wake()

    def describe_lost(self, *, after_s: float) -> str:
        """Describe a warm server that has ended, or an attached server that was unreachable for `after_s`; return "" if
        there is none. The end of their processes can't be seen here, and a trainer may wait for a response forever."""
        for probe in self._probes:
            if self.lease and probe.ended:
                return f"The warm server {self.lease.attempt_id}, which the run used, has ended. {probe.seen}"
            silent = probe.silent_since is not None and probe.silence() >= after_s
            if not probe.place.own and silent:
                return f"The attached vLLM server {probe.place.address} is no longer responding. {probe.seen}"
        return ""

    def describe_hung(self, *, heard_at: float, after_s: float) -> str:
        """Describe a live server that has served nothing for `after_s` while the trainer was silent too; return "" if
        there is none. TRL's client would wait for its response forever."""
        for probe, pulse in zip(self._probes, self.pulses, strict=False):
            unanswered, without_token = probe.silence(after=heard_at), pulse.silence(after=heard_at)
            if max(unanswered, without_token) < after_s:
                continue
            name = f"The vLLM server {probe.place.role} at {probe.place.address}"
            seconds = max(unanswered, without_token)
            since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
            requests = f"Requests: {pulse.running} running, {pulse.waiting} waiting."
            if unanswered >= after_s:
                return f"{name} has not responded since {since}, for {seconds:.0f} s. {probe.seen} {requests}"
            return f"{name} is responding but has generated no token since {since}, for {seconds:.0f} s. {requests}"
        return ""

    def states(self, *, heard_at: float) -> list[ServerState]:
        """Return the states of the servers. `heard_at`: when the trainer's last line was read."""
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
