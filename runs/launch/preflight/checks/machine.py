"""Checks of a host's machine: whether torch can use its GPUs, bf16, optional kernels and shared memory."""

from collections.abc import Iterator

from runs.engine.hosts.view import MIN_SHM_MIB
from runs.launch.preflight.draft import Draft, HostFacts
from runs.launch.preflight.finding import Finding, Fix, stop, warn
from runs.launch.preflight.hosts import fitting_hosts
from workers.contract.run.hardware import HardwareSpec, Precision, Rollout, precision_of

MIN_DRIVER = {13: 580, 12: 525, 11: 450}
"""CUDA's major version -> the oldest major version of the NVIDIA driver that supports it."""
MIN_CAPABILITY = 8.0
"""Lowest CUDA capability that supports bf16: Ampere."""


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
            "Remove the trainer's environment there and restart the host. If its driver is recent enough, it then "
            "installs torch with CUDA.",
        )
    min_driver = MIN_DRIVER.get(_major(host.cuda_built_for), 0)
    if 0 < _major(host.driver) < min_driver:
        return (
            f"The NVIDIA driver {host.driver} on {host.name} is too old for CUDA {host.cuda_built_for}, for which its "
            f"torch is built. Driver {min_driver} or later is needed.",
            "Update the driver.",
        )
    return (
        f"torch {torch} on {host.name} finds no usable GPU, although driver {host.driver} lists some.",
        "Call torch.cuda.is_available() in the trainer's environment there, and restart the host once it returns True.",
    )


def _major(version: str) -> int:
    major = version.partition(".")[0]
    return int(major) if major.isascii() and major.isdigit() else 0


def _bf16(draft: Draft, hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    if precision_of(hardware, draft.grpo) is not Precision.BF16:
        return
    incapable = [
        (host, gpu)
        for host in hosts
        for gpu in host.gpus
        if gpu.capability and _number(gpu.capability) < MIN_CAPABILITY
    ]
    if {host.name for host, _ in incapable} != {host.name for host in hosts}:
        return
    host, gpu = incapable[0]
    yield stop(
        "precision",
        f"GPU {gpu.index} of {host.name} (CUDA capability {gpu.capability}) doesn't support bf16.",
        "Train in fp16, or on Ampere or newer GPUs.",
        Fix("Use fp16", {"precision": "fp16"}),
    )


def _number(capability: str) -> float:
    try:
        return float(capability)
    except ValueError:
        return MIN_CAPABILITY


def _kernels(draft: Draft, hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    reporting_hosts = [host for host in hosts if host.versions]
    if not reporting_hosts:
        return
    host = reporting_hosts[0]
    attention = draft.attn_implementation or ""
    if attention.startswith("flash_attention") and not any(h.versions.get("flash-attn") for h in reporting_hosts):
        yield stop(
            "attn_implementation",
            f"{attention} needs the package flash-attn, which {host.name} doesn't have in its trainer's environment.",
            "Use sdpa, which is also fast, or install flash-attn there (its releases page has wheels).",
            Fix("Use sdpa", {"attn_implementation": "sdpa"}),
        )
    override = draft.grpo.get("use_liger_kernel")
    is_on = hardware.liger_kernels if override is None else bool(override)
    if is_on and not any(h.versions.get("liger-kernel") for h in reporting_hosts):
        yield stop(
            "use_liger_kernel" if override else "profile",
            f"Liger kernels need the package liger-kernel, which {host.name} doesn't have in its trainer's "
            "environment.",
            "Train without Liger kernels, or install liger-kernel there.",
            Fix("Train without Liger kernels", {"use_liger_kernel": "false"}),
        )


def _shared_memory(hardware: HardwareSpec, hosts: list[HostFacts]) -> Iterator[Finding]:
    """Warn if all hosts have little shared memory, through which vLLM's workers and ranks exchange tensors. Containers
    get 64 MiB by default."""
    server = hardware.vllm_server
    shares = hardware.processes > 1 or hardware.rollout is Rollout.COLOCATE or (server and not server.attached)
    lacking = [host for host in hosts if host.shm_mib is not None and host.shm_mib < MIN_SHM_MIB]
    if shares and len(lacking) == len(hosts):
        yield warn(
            "host",
            f"{lacking[0].name} has {lacking[0].shm_mib} MiB of shared memory (/dev/shm), but vLLM and multiple ranks "
            "use more.",
            "Give its container more with --shm-size=8g or --ipc=host.",
        )
