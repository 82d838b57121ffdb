"""GPU memory that attached vLLM servers keep until they restart: a little from each run that sends them weights over
NCCL. What one run leaves is within a receipt's margin and becomes part of the next run's idle memory, so only a series
of receipts shows it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runs.engine.models import Attempt
from workers.contract.run.hardware import WeightSync

MIN_MIB = 64
"""Smallest difference, in MiB, that isn't treated as noise."""
MAX_RECEIPTS = 100
"""Number of a host's newest receipts that are read."""


@dataclass(frozen=True)
class KeptMemory:
    gpu: int
    mib: int
    """MiB kept from the newest run."""
    total_mib: int
    """MiB kept from all runs since the servers' restart."""
    servers: tuple[str, ...]


@dataclass
class _ReceiptChain:
    """The receipts of one GPU, newest first, back to the last release of memory between two receipts."""

    parts: list[int] = field(default_factory=list)
    servers: dict[str, None] = field(default_factory=dict)
    before_mib: int | None = None
    is_over: bool = False

    def add(self, gpu: Mapping[str, Any], servers: tuple[str, ...]) -> None:
        self.is_over |= self.before_mib is not None and gpu["after_mib"] > self.before_mib + MIN_MIB
        self.before_mib = gpu["before_mib"]
        part = gpu["after_mib"] - gpu["before_mib"]
        if servers and part >= MIN_MIB and gpu["seconds_to_free"] is not None and not self.is_over:
            self.parts.append(part)
            self.servers |= dict.fromkeys(servers)


def of_attempt(attempt: Attempt) -> list[KeptMemory]:
    """List the memory that servers keep from an ended attempt, to be shown with its receipt."""
    if attempt.receipt is None or attempt.host_id is None or not sends_weights(attempt.run.spec):
        return []
    chains = _chains(attempt.host_id, until=attempt)
    gpus = [gpu for gpu in attempt.receipt["gpus"] if gpu["after_mib"] - gpu["before_mib"] >= MIN_MIB]
    return [memory for gpu in gpus if (memory := _kept_memory(int(gpu["gpu"]), chains[int(gpu["gpu"])]))]


def on_host(host_id: int, used_mib: Mapping[int, int]) -> dict[int, KeptMemory]:
    """Map GPU indexes to the memory that servers keep there. `used_mib` is the memory in use now, which shows whether
    the servers have restarted."""
    on_gpus = (_kept_memory(index, chain) for index, chain in _chains(host_id).items())
    return {row.gpu: row for row in on_gpus if row and used_mib.get(row.gpu, 0) + MIN_MIB >= row.total_mib}


def sends_weights(spec: Mapping[str, Any]) -> bool:
    return bool(_servers((spec.get("hardware") or {}).get("server")))


def _chains(host_id: int, *, until: Attempt | None = None) -> dict[int, _ReceiptChain]:
    attempts = Attempt.objects.filter(host_id=host_id, receipt__isnull=False, ended_at__isnull=False)
    if until is not None:
        attempts = attempts.filter(ended_at__lte=until.ended_at)
    chains: dict[int, _ReceiptChain] = defaultdict(_ReceiptChain)
    for receipt, server in attempts.order_by("-ended_at").values_list("receipt", "run__spec__hardware__server")[
        :MAX_RECEIPTS
    ]:
        for gpu in (receipt or {}).get("gpus") or ():
            chains[int(gpu["gpu"])].add(gpu, _servers(server))
    return chains


def _kept_memory(index: int, chain: _ReceiptChain) -> KeptMemory | None:
    return KeptMemory(index, chain.parts[0], sum(chain.parts), tuple(chain.servers)) if chain.parts else None


def _servers(server: Mapping[str, Any] | None) -> tuple[str, ...]:
    """List the attached servers if they receive weights over NCCL."""
    if not server or server.get("weight_sync") != WeightSync.NCCL:
        return ()
    return tuple(server.get("attached") or ())
