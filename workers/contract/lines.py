"""What travels between a supervisor and the control plane, the kill receipt included."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GpuReceipt:
    gpu: str
    before_mib: int
    """Baseline, read before anything of the attempt was started."""
    peak_mib: int
    after_mib: int
    seconds_to_free: float | None
    """None: not proved free before the deadline; the lease is quarantined."""


@dataclass(frozen=True)
class Receipt:
    """The kill receipt: proof that nothing of the attempt is left."""

    seconds_to_gone: float
    """From the first signal (or the natural end) until the tree was seen empty twice."""
    processes_ended: int
    orphans_found: int
    """Descendants outside the process groups that the supervisor started."""
    survivors: tuple[int, ...]
    gpus: tuple[GpuReceipt, ...]
    port_free: bool | None
    """None when the attempt had no server."""
    free: bool
    """No survivor, and every leased GPU is at its baseline + 300 MiB in two samples."""


@dataclass(frozen=True)
class OutboxLine:
    """One line of outbox.jsonl, and one element of a sync request's `lines`."""

    seq: int
    t: float
    """Unix seconds."""
    kind: str
    step: int | None
    data: dict[str, Any]


@dataclass(frozen=True)
class SyncAnswer:
    ack: int
    """The last seq stored without a gap."""
    stop: str | None
    watched: bool


@dataclass(frozen=True)
class ClaimAnswer:
    go: bool
    why: str
    ack: int
    """The last seq already stored for the run; first_seq - 1 for a fresh attempt."""
    stop: str | None
    secrets: dict[str, str] = field(repr=False)
    """Environment variables for the processes that need them; written down nowhere."""
