"""Is there a host that can ever take this run, and can it now?"""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft, HostFacts
from runs.preflight.finding import Finding, note, stop, warn
from workers.contract import HardwareSpec, Rollout


def check(draft: Draft) -> Iterator[Finding]:
    if not draft.hosts:
        yield stop(
            "host",
            "No host has announced itself, so nothing can train.",
            "Start a host worker; the Hardware page shows it within 10 seconds.",
        )
        return
    if draft.hardware is None:
        return
    fitting = [host for host in draft.hosts if not shortage(host, draft.hardware)]
    if not fitting:
        yield from _too_small(draft, draft.hardware)
    elif not any(host.usable for host in fitting):
        yield from _not_now(fitting)
    elif draft.host_chosen is False and len(fitting) < len(draft.hosts):
        others = ", ".join(host.name for host in draft.hosts if host not in fitting)
        yield note("host", f"Too small for this profile: {others}.")


def shortage(host: HostFacts, hardware: HardwareSpec) -> str:
    """Why the host can never take this profile; "" when it can."""
    server = hardware.server.own_gpus if hardware.rollout == Rollout.SERVER and hardware.server else 0
    wanted = hardware.trainer_gpus + server
    if wanted > len(host.gpus):
        have = f"{len(host.gpus)} GPU{'' if len(host.gpus) == 1 else 's'}" if host.gpus else "no GPU"
        if server and hardware.trainer_gpus and len(host.gpus) == 1:
            return (
                f"{host.name} has one GPU, and a server with NCCL weight updates can't share it with the trainer: "
                "NCCL refuses two ranks on one device"
            )
        return f"{host.name} has {have}, and the profile takes {wanted}"
    if hardware.cpu_slots > len(host.cpu_slots):
        return f"{host.name} has {len(host.cpu_slots)} CPU slots, and the profile takes {hardware.cpu_slots}"
    if hardware.rollout != Rollout.TRANSFORMERS and host.trainer == "ready" and not host.versions.get("vllm"):
        return f"{host.name} has no vLLM in its trainer's environment"
    return ""


def _too_small(draft: Draft, hardware: HardwareSpec) -> Iterator[Finding]:
    for host in draft.hosts:
        reason = shortage(host, hardware)
        fix = "Choose another profile or host."
        if "can't share" in reason:
            fix = "Choose a profile with vLLM colocated in the trainer."
        yield stop("profile", f"{reason}.", fix)


def _not_now(fitting: list[HostFacts]) -> Iterator[Finding]:
    for host in fitting:
        if host.trainer == "missing":
            yield stop("host", f"{host.name} has no trainer environment.", "Set GRPO_TRAINER_PYTHON on that host.")
        elif host.trainer == "checking":
            yield note("host", f"{host.name} is still looking at its trainer environment.", "The run waits for it.")
        elif not host.fresh:
            yield warn(
                "host",
                f"{host.name} was last heard {host.stale_for} ago, so a launch can't arrive there.",
                "The run stays queued until the host is back.",
            )
        else:
            yield warn("host", f"{host.name} takes no new runs.", "The run stays queued until it does.")
