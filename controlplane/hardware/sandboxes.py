"""How a host holds code that rewards run: what it told of itself, and what an admin allows."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.hardware import inventory
from controlplane.hardware.models import Host

BARE = (
    "It can do all that the trainer’s user can: read files and keys, empty files, and use the network through that "
    "user’s other processes."
)
"""What code can do on a host where it runs without a sandbox; workers/README.md says it in full."""


@dataclass(frozen=True)
class HostSandbox:
    known: bool
    """The host has told; it does so within a minute of its worker's start."""
    backend: str
    """The best that holds there; "" where none does."""
    lacks: tuple[tuple[str, str], ...]
    """Those that don't, and why."""
    allowed: bool
    """An admin lets code run there all the same."""

    @property
    def bare(self) -> bool:
        """Code runs there without a sandbox."""
        return self.known and not self.backend and self.allowed

    @property
    def runs_code(self) -> bool:
        return bool(self.backend) or self.bare

    @property
    def reach(self) -> str:
        """What code that a model wrote can do there, for people; "" where a sandbox holds it, or it doesn't run."""
        return BARE if self.bare else ""

    @property
    def why_not(self) -> str:
        """Of a host without one, in the host's words."""
        return "; ".join(f"{name}: {why}" for name, why in self.lacks)


def sandbox_of(host: Host) -> HostSandbox:
    told = inventory.sandbox(host.inventory.get("sandbox"))
    if told is None:
        return HostSandbox(False, "", (), host.unsandboxed_allowed)
    lacks = tuple((name, why) for name, why in told["tried"].items() if why)
    return HostSandbox(True, told["backend"] or "", lacks, host.unsandboxed_allowed)


def problem(host: Host) -> str:
    """Why no reward that runs code can be placed there; "" when one can."""
    found = sandbox_of(host)
    if found.runs_code:
        return ""
    if not found.known:
        return f"{host.name} has not reported yet how it holds code that rewards run"
    return f"{host.name} has no sandbox for code that rewards run"
