"""Abilities of a host's machine: torch with its GPUs, bf16, optional kernels, shared memory."""

from collections.abc import Iterator

from runs.engine.hosts.view import MIN_SHM_MIB
from runs.launch.preflight.draft import Draft, HostFacts
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run.hardware import HardwareSpec, Precision, Rollout, precision_of

MIN_DRIVER = {13: 580, 12: 525, 11: 450}
"""CUDA's major version -> the first NVIDIA driver for it."""
BF16_FROM = 8.0
"""Lowest CUDA capability with bf16: Ampere."""


def check(draft: Draft) -> Iterator[Finding]:
    hardware = draft.hardware
    hosts = [host for host in fitting_hosts(draft) if host.usable]
    if hardware is None or hardware.trainer_gpus < 1 or not hosts:
        return
    yield from _torch(hosts)
    yield from _bf16(draft, hardware, hosts)
    yield from _kernels(draft, hardware, hosts)
    yield from _shared_memory(hardware, hosts)


def _torch(hosts: list[HostFacts]) -> Iterator[Finding]:
    if all(host.cuda_usable is False for host in hosts):
        for host in hosts:
            cause, fix = _why_unusable(host)
            yield stop("host", cause, fix)


def _why_unusable(host: HostFacts) -> tuple[str, str]:
    torch = host.versions.get("torch", "")
    if not host.cuda_built_for:
        return (
            f"{host.name} trains with a CPU build of torch ({torch}), which can't use its GPUs.",
            "Remove the trainer's environment there and start the host again: with a driver that is recent enough it "
            "installs torch with CUDA.",
        )
    needed = MIN_DRIVER.get(_major(host.cuda_built_for), 0)
    if 0 < _major(host.driver) < needed:
        return (
            f"The NVIDIA driver {host.driver} of {host.name} is too old for CUDA {host.cuda_built_for}, which its "
            f"torch is built for: it needs {needed} or later.",
            "Update the driver.",
        )
    return (
        f"torch {torch} on {host.name} finds no usable GPU, although the driver {host.driver} shows some.",
        "Try torch.cuda.is_available() in the trainer's environment there, and restart the host when it answers True.",
    )


def _major(version: str) -> int:
    first = version.partition(".")[0]
    return int(first) if first.isascii() and first.isdigit() else 0


def _bf16(draft: Draft, hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    if precision_of(hardware, draft.grpo) is not Precision.BF16:
        return
    without = [
        (host, gpu) for host in hosts for gpu in host.gpus if gpu.capability and _number(gpu.capability) < BF16_FROM
    ]
    if {host.name for host, _ in without} != {host.name for host in hosts}:
        return
    host, gpu = without[0]
    yield stop(
        "precision",
        f"GPU {gpu.index} of {host.name} (CUDA capability {gpu.capability}) doesn't support bf16.",
        "Train in fp16, or on GPUs from Ampere on.",
        Fix("Use fp16", {"precision": "fp16"}),
    )


def _number(capability: str) -> float:
    try:
        return float(capability)
    except ValueError:
        return BF16_FROM


def _kernels(draft: Draft, hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    reported = [host for host in hosts if host.versions]
    if not reported:
        return
    host = reported[0]
    chosen = draft.attn_implementation or ""
    if chosen.startswith("flash_attention") and not any(h.versions.get("flash-attn") for h in reported):
        yield stop(
            "attn_implementation",
            f"{chosen} needs the package flash-attn, which {host.name} doesn't have in its trainer's environment.",
            "Use sdpa, which is fast as well, or install flash-attn there (its wheels are on its releases page).",
            Fix("Use sdpa", {"attn_implementation": "sdpa"}),
        )
    own = draft.grpo.get("use_liger_kernel")
    is_on = hardware.liger_kernels if own is None else bool(own)
    if is_on and not any(h.versions.get("liger-kernel") for h in reported):
        yield stop(
            "use_liger_kernel" if own else "profile",
            f"Liger kernels need the package liger-kernel, which {host.name} doesn't have in its trainer's "
            "environment.",
            "Train without them, or install liger-kernel there.",
            Fix("Train without Liger kernels", {"use_liger_kernel": "false"}),
        )


def _shared_memory(hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    """Warn of little shared memory, in which vLLM's workers and ranks exchange tensors; containers get 64 MiB by
    default."""
    server = hardware.vllm_server
    shares = hardware.processes > 1 or hardware.rollout is Rollout.COLOCATE or (server and not server.attached)
    small = [host for host in hosts if host.shm_mib is not None and host.shm_mib < MIN_SHM_MIB]
    if shares and len(small) == len(hosts):
        yield warn(
            "host",
            f"{small[0].name} has {small[0].shm_mib} MiB of shared memory (/dev/shm), and vLLM and several ranks use "
            "more.",
            "Give its container more, with --shm-size=8g or --ipc=host.",
        )
