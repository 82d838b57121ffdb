"""The idle warm servers during one pass through the queue: which of them fits a run, and which would make room."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from controlplane.hardware.models import Host
from runs.models import Run
from runs.states import RunStatus
from runs.warm.models import WarmServer
from workers.contract import Placement, RunSpec, WarmPlace, from_dict, warm


@dataclass(frozen=True)
class IdleServer:
    place: WarmPlace
    run_id: str
    owner_id: int
    host_id: int
    key: str
    graphs: int
    vllm: str

    def fits(self, spec: RunSpec, owner_id: int, host: Host) -> bool:
        """Whether a run of this person may use it: only its owner's may."""
        alike = self.key == warm.key(spec) and warm.fits(self.graphs, spec)
        return alike and self.owner_id == owner_id and self.vllm == version_on(host)


class IdleServers:
    """The servers nobody uses, the longest idle first."""

    def __init__(self, servers: Iterable[IdleServer] = ()) -> None:
        self._servers = list(servers)

    @classmethod
    def read(cls) -> IdleServers:
        rows = WarmServer.objects.filter(
            used_by=None,
            leaving="",
            attempt__stop_mode="",
            attempt__status__in=(RunStatus.STARTING, RunStatus.RUNNING),
            attempt__host__isnull=False,
        )
        return cls(map(_idle, rows.select_related("attempt__run").order_by("idle_since")))

    def for_run(self, run: Run, spec: RunSpec, hosts: Collection[Host]) -> Iterator[IdleServer]:
        """Those that the run may use on these hosts, the last used first."""
        if warm.wanted(spec):
            by_id = {host.pk: host for host in hosts}
            for server in reversed(self._servers):
                if server.host_id in by_id and server.fits(spec, run.owner_id, by_id[server.host_id]):
                    yield server

    def on(self, host: Host) -> list[IdleServer]:
        return [server for server in self._servers if server.host_id == host.pk]

    def take(self, place: WarmPlace) -> None:
        self._servers = [server for server in self._servers if server.place.attempt_id != place.attempt_id]


def version_on(host: Host) -> str:
    return str((host.inventory.get("versions") or {}).get("vllm") or "")[:40]


def _idle(row: WarmServer) -> IdleServer:
    attempt = row.attempt
    placement = from_dict(Placement, attempt.placement)
    return IdleServer(
        place=WarmPlace(attempt.pk, placement.ports),
        run_id=attempt.run_id,
        owner_id=attempt.run.owner_id,
        host_id=attempt.host_id or 0,
        key=row.key,
        graphs=row.graphs,
        vllm=row.vllm,
    )
