"""Idle warm servers during one pass through the queue: those that fit a run, and those that could end to make room."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from controlplane.catalogue.hardware.models import Host
from runs.engine.states import RunStatus
from runs.engine.warm.models import WarmServer
from workers.contract.run.spec import Placement, RunSpec, WarmPlace
from workers.contract.stack import warm
from workers.contract.wire.documents import from_dict


@dataclass(frozen=True)
class IdleServer:
    placement: WarmPlace
    run_id: str
    owner_id: int
    host_id: int
    key: str
    graphs: int
    vllm: str

    def fits(self, spec: RunSpec, owner_id: int, host: Host) -> bool:
        """Return whether a run of this owner may use the server; its owner, settings and vLLM version must match."""
        settings_match = self.key == warm.key(spec) and warm.fits(self.graphs, spec)
        return settings_match and self.owner_id == owner_id and self.vllm == host.vllm


class IdleServers:
    """Warm servers that no run is using, longest idle first."""

    def __init__(self, servers: Iterable[IdleServer] = ()) -> None:
        self._servers = list(servers)

    @classmethod
    def read(cls) -> "IdleServers":
        rows = WarmServer.objects.filter(
            used_by=None,
            leaving="",
            attempt__stop_mode="",
            attempt__status__in=(RunStatus.STARTING, RunStatus.RUNNING),
            attempt__host__isnull=False,
        )
        return cls(map(_idle_server, rows.select_related("attempt__run").order_by("idle_since")))

    def for_run(self, owner_id: int, spec: RunSpec, hosts: Iterable[Host]) -> list[IdleServer]:
        """List the servers that a run of this owner may use on these hosts, most recently used first."""
        if not (self._servers and warm.shares_servers(spec)):
            return []
        by_id = {host.pk: host for host in hosts}
        servers_there = (server for server in reversed(self._servers) if server.host_id in by_id)
        return [server for server in servers_there if server.fits(spec, owner_id, by_id[server.host_id])]

    def __contains__(self, server: IdleServer) -> bool:
        return server in self._servers

    def on(self, host: Host) -> list[IdleServer]:
        return [server for server in self._servers if server.host_id == host.pk]

    def remove(self, placement: WarmPlace) -> None:
        self._servers = [server for server in self._servers if server.placement.attempt_id != placement.attempt_id]


def with_own_servers(placement: Placement) -> Placement:
    """Rewrite a placement as if the run had started its warm servers itself, so that it can be repeated without
    them."""
    if placement.warm is None:
        return placement
    server = WarmServer.objects.filter(pk=placement.warm.attempt_id).select_related("attempt").first()
    server_placement = from_dict(Placement, server.attempt.placement) if server else Placement(placement.host)
    return replace(
        placement,
        warm=None,
        server_gpus=server_placement.server_gpus,
        lora_kernels=server_placement.lora_kernels,
        ports=(*placement.warm.ports, *placement.ports),
    )


def _idle_server(row: WarmServer) -> IdleServer:
    attempt = row.attempt
    placement = from_dict(Placement, attempt.placement)
    return IdleServer(
        placement=WarmPlace(attempt.pk, placement.ports),
        run_id=attempt.run_id,
        owner_id=attempt.run.owner_id,
        host_id=attempt.host_id or 0,
        key=row.key,
        graphs=row.graphs,
        vllm=row.vllm,
    )
