"""Checks of the hosts: which of them can take this run, now or at all; and of the owner's limits."""

from collections.abc import Iterator

from runs.engine.scheduling.leasing import runs_code
from runs.engine.scheduling.limits import TO_MAKE_ROOM
from runs.engine.sentences import counted
from runs.launch.preflight.draft import Draft, GpuFacts, HostFacts
from runs.launch.preflight.finding import Finding, note, stop, warn
from workers.contract.run.hardware import HardwareSpec, Rollout, WeightSync


def check(draft: Draft) -> Iterator[Finding]:
    if draft.machines and not draft.host_chosen and not fitting_hosts(draft):
        sources = " or ".join(machine.name for machine in draft.machines)
        yield note(
            "host",
            f"No host has the GPUs that this profile needs, but a machine from {sources} has them.",
            "The run will be queued and the machine requested.",
        )
        return
    if not draft.hosts:
        yield stop(
            "host",
            "No host has announced itself, so nothing can train.",
            "Start one with `manage.py up`; the Hardware page shows this machine within 10 seconds.",
        )
        return
    if draft.hardware is None:
        return
    fitting = fitting_hosts(draft)
    if not fitting:
        yield from _too_small(draft, draft.hardware)
    elif not any(host.usable for host in fitting):
        yield from _not_now(fitting)
    else:
        yield from _check_free_gpus(fitting, draft.hardware)
        if draft.host_chosen is False and len(fitting) < len(draft.hosts):
            too_small = ", ".join(host.name for host in draft.hosts if host not in fitting)
            yield note("host", f"Too small for this profile: {too_small}.")


def fitting_hosts(draft: Draft) -> list[HostFacts]:
    """List the hosts that have the profile's resources, whether or not these are free."""
    hardware = draft.hardware
    return [host for host in draft.hosts if not shortage(host, hardware)] if hardware else []


def machine_to_ask(draft: Draft) -> HostFacts | None:
    """Return the machine that the launch requests, or None if a host has the run's resources or no source offers
    one."""
    return draft.machines[0] if draft.machines and not fitting_hosts(draft) else None


def shortage(host: HostFacts, hardware: HardwareSpec) -> str:
    """Explain why the host can never run this profile; return "" if it can."""
    server = hardware.server_gpus
    count = hardware.trainer_gpus + server
    if count and host.gpu_error:
        return f"{host.name} can't read its GPUs: {host.gpu_error.rstrip('.')}"
    if count > len(host.gpus):
        available_gpus = counted(len(host.gpus), "GPU") if host.gpus else "no GPU"
        if server and hardware.trainer_gpus and len(host.gpus) == 1 and _uses_nccl(hardware):
            return (
                f"{host.name} has one GPU, which the trainer and a server with NCCL weight updates can't share: "
                "NCCL refuses two ranks on one device"
            )
        return f"{host.name} has {available_gpus}, but the profile needs {count}"
    indexes = {gpu.index for gpu in host.gpus}
    absent = [index for index in _pinned(hardware) if index not in indexes]
    if absent:
        return f"{host.name} has no GPU {absent[0]}, which the profile names; the host has {_gpu_range(indexes)}"
    if hardware.cpu_slots > len(host.cpu_slots):
        return f"{host.name} has {len(host.cpu_slots)} CPU slots, but the profile needs {hardware.cpu_slots}"
    if _needs_vllm(hardware) and host.trainer == "ready" and not host.versions.get("vllm"):
        return f"{host.name} has no vLLM in its trainer's environment"
    return ""


def _check_free_gpus(fitting: list[HostFacts], hardware: HardwareSpec) -> Iterator[Finding]:
    """Warn if every usable host would have to use a GPU on which another program is running."""
    foreign = [_foreign(host, hardware) for host in fitting if host.usable]
    if not all(foreign):
        return
    for host, gpu in filter(None, foreign):
        attached = hardware.vllm_server.attached if hardware.vllm_server and _uses_nccl(hardware) else ()
        restart_advice = (
            f" The attached server keeps some of each run's memory there. Restart {_join([*attached])} to free it."
        )
        yield warn(
            "profile",
            f"GPU {gpu.index} of {host.name} has {gpu.foreign_mib / 1024:.3g} GiB in use by another program, and this "
            "profile needs that GPU.",
            "Stop that program first, or the run will probably run out of memory. Such a GPU is used last."
            f"{restart_advice if attached else ''}",
        )


def _foreign(host: HostFacts, hardware: HardwareSpec) -> tuple[HostFacts, GpuFacts] | None:
    pinned = _pinned(hardware)
    busy_gpus = [gpu for gpu in host.gpus if gpu.foreign_mib]
    count = hardware.trainer_gpus + hardware.server_gpus
    pinned_gpus = [gpu for gpu in busy_gpus if gpu.index in pinned]
    if pinned_gpus:
        return host, pinned_gpus[0]
    needs_busy = len(pinned) < count and len(host.gpus) - len(busy_gpus) < count
    return (host, busy_gpus[0]) if needs_busy else None


def _pinned(hardware: HardwareSpec) -> tuple[int, ...]:
    server = hardware.vllm_server
    return hardware.trainer_gpu_ids + (server.gpu_ids if server and server.own_gpus else ())


def _gpu_range(indexes: set[int]) -> str:
    ordered_indexes = sorted(indexes)
    if len(ordered_indexes) > 1 and ordered_indexes == list(range(ordered_indexes[0], ordered_indexes[-1] + 1)):
        return f"GPUs {ordered_indexes[0]} to {ordered_indexes[-1]}"
    return f"GPU {', '.join(map(str, ordered_indexes))}"


def _uses_nccl(hardware: HardwareSpec) -> bool:
    return hardware.server is not None and hardware.server.weight_sync == WeightSync.NCCL


def _needs_vllm(hardware: HardwareSpec) -> bool:
    """Return whether the host needs vLLM. It doesn't for an external server that gets only an adapter over HTTP."""
    if hardware.vllm_server and hardware.vllm_server.attached:
        return _uses_nccl(hardware)
    return hardware.rollout != Rollout.TRANSFORMERS


def _too_small(draft: Draft, hardware: HardwareSpec) -> Iterator[Finding]:
    for host in draft.hosts:
        reason = shortage(host, hardware)
        fix = "Choose another profile or host."
        if "can't share" in reason:
            fix = "Choose a profile with vLLM colocated in the trainer, or one with a shared GPU and LoRA hot-swap."
        elif "can't read" in reason:
            fix = "Check the driver on that host, or choose another host."
        yield stop("profile", f"{reason}.", fix)


def _not_now(fitting: list[HostFacts]) -> Iterator[Finding]:
    for host in fitting:
        if host.trainer == "missing":
            yield stop("host", f"{host.name} has no trainer environment.", "Set GRPO_TRAINER_PYTHON on that host.")
        elif host.trainer == "checking":
            yield note("host", f"{host.name} is still checking its trainer environment.", "The run waits for it.")
        elif not host.fresh:
            yield warn(
                "host",
                f"{host.name} was last heard from {host.stale_for} ago, so a run can't start there now.",
                "The run stays queued until the host is back.",
            )
        else:
            yield warn("host", f"{host.name} accepts no new runs.", "The run stays queued until it does.")


SANDBOX_FIX = (
    "Set up bubblewrap or Landlock there (docker/sandbox.md says what each needs), choose another host, remove these "
    "rewards, or ask an admin to allow code without a sandbox on the Hardware page."
)


def check_sandbox(draft: Draft) -> Iterator[Finding]:
    rewards = [part.name for part in draft.every_entry if runs_code(part)]
    hosts = fitting_hosts(draft)
    if not rewards or not hosts:
        return
    sandboxed = [host for host in hosts if host.sandbox.runs_code]
    unreported = [host for host in hosts if not host.sandbox.reported]
    if not sandboxed and not unreported:
        for host in hosts:
            reason = f": {host.sandbox.why_not}" if host.sandbox.why_not else ""
            yield stop(
                "host", f"{host.name} has no sandbox for the code that {_which_run(rewards)}{reason}.", SANDBOX_FIX
            )
        return
    if not sandboxed:
        names = _join([host.name for host in unreported])
        cause = f"{names} has not reported yet whether it has a sandbox for the code that {_which_run(rewards)}."
        yield note("host", cause, "The run waits for it.")
    elif draft.host_chosen is False and (
        hosts_without_sandbox := [host.name for host in hosts if host not in sandboxed + unreported]
    ):
        yield note("host", f"Without a sandbox for {_join(rewards)}: {', '.join(hosts_without_sandbox)}.")
    for host in sandboxed:
        if host.sandbox.bare:
            yield warn(
                "host",
                f"{host.name} has no sandbox, but an admin allows code there, so what the model writes runs without "
                f"one ({_join(rewards)}).",
                host.sandbox.reach,
            )


def _which_run(rewards: list[str]) -> str:
    return f"{_join(rewards)} {'runs' if len(rewards) == 1 else 'run'}"


def _join(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def check_limits(draft: Draft) -> Iterator[Finding]:
    owner = draft.owner
    if owner is None:
        return
    if problem := owner.no_room(draft.runs):
        yield stop("", problem, TO_MAKE_ROOM)
    elif not owner.may_start:
        yield warn("", f"The run would be queued: it {owner.wait}.", "It starts automatically then.")
