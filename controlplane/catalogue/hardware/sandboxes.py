"""Isolation of code that rewards run on a host, according to the host's report and an admin's permission."""

from dataclasses import dataclass

from controlplane.catalogue.hardware import inventory
from controlplane.catalogue.hardware.models import Host

NO_SANDBOX_WARNING = (
    "It can do everything the trainer’s user can: read files and keys, delete files, and use the network through that "
    "user’s other processes."
)
"""The risk of running code without a sandbox; workers/sandbox/README.md has the details."""


@dataclass(frozen=True)
class HostSandbox:
    reported: bool
    """True once the host has reported its sandbox, which it does within a minute of its worker's start."""
    backend: str
    """Best backend that works on the host; "" if none does."""
    lacks: tuple[tuple[str, str], ...]
    """Backends that don't work, each with the reason."""
    allowed: bool
    """True if an admin allows code to run on the host without a sandbox."""

    @property
    def bare(self) -> bool:
        """True if code runs on the host without a sandbox."""
        return self.reported and not self.backend and self.allowed

    @property
    def runs_code(self) -> bool:
        return bool(self.backend) or self.bare

    @property
    def reach(self) -> str:
        """Sentence on the risk of running model-written code; "" if a sandbox isolates the code or none is run."""
        return NO_SANDBOX_WARNING if self.bare else ""

    @property
    def why_not(self) -> str:
        """Reasons why no sandbox works, as the host reports them."""
        return "; ".join(f"{name}: {reason}" for name, reason in self.lacks)


def sandbox_of(host: Host) -> HostSandbox:
    report = inventory.sandbox(host.inventory.get("sandbox"))
    if report is None:
        return HostSandbox(False, "", (), host.unsandboxed_allowed)
    failed_backends = tuple((name, reason) for name, reason in report["tried"].items() if reason)
    return HostSandbox(True, report["backend"] or "", failed_backends, host.unsandboxed_allowed)


def problem(host: Host) -> str:
    """Explain why rewards that run code can't run on the host; return "" if they can."""
    host_sandbox = sandbox_of(host)
    if host_sandbox.runs_code:
        return ""
    if not host_sandbox.reported:
        return f"host {host.name} has not yet reported its sandbox for code that rewards run"
    return f"host {host.name} has no sandbox for code that rewards run"
