"""All vLLM servers of an attempt: own ones are started, verified, watched and ended; attached ones only polled."""

from __future__ import annotations

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
from workers.supervisor.servers.warmth import lease_of

PROBE_S = 0.5


class ServerState(NamedTuple):
    """A server as a hang finds it."""

    role: str
    unanswered_s: float
    """How long it hasn't answered; 0 if it does."""
    running: int
    waiting: int
    still_s: float
    """How long it has had requests without generating a token."""


class Servers:
    def __init__(
        self,
        spec: AttemptSpec,
        settings: HostSettings,
        places: tuple[ServerPlace, ...],
        *,
        tree: Callable[[], set[int]],
    ) -> None:
        self.places = places
        self.lease = lease_of(spec, settings)
        """Of the warm servers that are used in place of own ones."""
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
        """One per place, once its figures are read."""
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
        """Leased ports: of the own servers, of a trainer that listens itself (a job, a gateway), and for sending
        weights."""
        group = () if self._group_port is None or not self.places else (self._group_port,)
        return (*(place.port for place in self.own), *self._trainer_ports, *group)

    @property
    def addresses(self) -> list[str]:
        return [place.address for place in self.places]

    def port_in_use(self) -> int | None:
        """A leased port on which something else listens."""
        return next((port for port in self.ports if not listening.port_is_free(port)), None)

    def probe(self, now: float) -> None:
        """Start polling: the processes have been started."""
        self._deadline = now + self._timeout_s
        self._loops = [Loop(f"{probe.place.role}-health", probe.tick) for probe in self._probes]
        for loop in self._loops:
            loop.start()

    def ready(self) -> int:
        """How many are ready and, for own ones, verified to be ours."""
        return sum(probe.ready for probe in self._probes)

    def late(self, now: float) -> str:
        """The server that missed its deadline, and its last known state; "" before the deadline."""
        if now < self._deadline:
            return ""
        return " ".join(f"{self._name(probe.place)}{probe.seen}" for probe in self._probes if not probe.ready)

    def first_exit(self, exits: Mapping[str, ChildExit]) -> ChildExit | None:
        roles = {place.role for place in self.own}
        return next((exit_ for role, exit_ in exits.items() if role in roles), None)

    def look_again(self) -> None:
        """Probe again after a failure, which an attached server may have caused."""
        for loop in self._loops:
            loop.wake()

    def lost(self, *, after_s: float) -> str:
        """The warm server that has ended, or the attached one that has been unreachable for this long, or "": no one
        sees its process end, and a trainer may wait for its answer forever."""
        for probe in self._probes:
            if self.lease and probe.ended:
                return f"The warm server {self.lease.attempt_id}, which the run used, has ended. {probe.seen}"
            silent = probe.silent_since is not None and probe.silence() >= after_s
            if not probe.place.own and silent:
                where = f"The attached vLLM server {probe.place.address} no longer answers."
                return f"{where} {probe.seen}"
        return ""

    def hung(self, *, heard_at: float, after_s: float) -> str:
        """The server that is alive but has served nothing for this long while the trainer was silent too, or "": TRL's
        client would wait for its answer forever."""
        for probe, pulse in zip(self._probes, self.pulses, strict=False):
            unanswered, still = probe.silence(after=heard_at), pulse.silence(after=heard_at)
            if max(unanswered, still) < after_s:
                continue
            who = f"The vLLM server {probe.place.role} at {probe.place.address}"
            seconds = max(unanswered, still)
            since = time.strftime("%H:%M:%S UTC", time.gmtime(time.time() - seconds))
            requests = f"Requests: {pulse.running} running, {pulse.waiting} waiting."
            if unanswered >= after_s:
                return f"{who} has not answered since {since}, for {seconds:.0f} s. {probe.seen} {requests}"
            return f"{who} answers, but has made no token since {since}, for {seconds:.0f} s. {requests}"
        return ""

    def states(self, *, heard_at: float) -> list[ServerState]:
        """`heard_at`: the trainer's last word."""
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

    def _name(self, place: ServerPlace) -> str:
        if not place.own:
            return f"{place.address}: "
        return f"{place.role}: " if len(self.places) > 1 else ""
