"""The memory of each GPU: only what can't possibly fit is refused, with the numbers."""

from __future__ import annotations

from collections.abc import Iterator

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop
from runs.preflight.hosts import fitting_hosts
from workers.contract import HardwareSpec, Quantization, Rollout, precision_of
from workers.contract.memory_rules import Floor, colocated_copy, server_copy, trainer_floor


def check(draft: Draft) -> Iterator[Finding]:
    hardware, parameters = draft.hardware, draft.model_size("parameters")
    largest = max((gpu.memory_mib for host in fitting_hosts(draft) for gpu in host.gpus), default=0) / 1024
    if hardware is None or not parameters or not largest or (draft.inspection or {}).get("quantization"):
        return
    if hardware.trainer_gpus:
        floor = _floor(draft, hardware, parameters, lora=draft.lora is not None)
        yield from _trainer(draft, hardware, parameters, floor, largest)
        yield from _beside(hardware, parameters, floor, largest)
    yield from _server(draft, parameters, largest)


def _floor(draft: Draft, hardware: HardwareSpec, parameters: int, *, lora: bool) -> Floor:
    # Weights in mixed precision count as 16 bits.
    precision, reference = precision_of(hardware, draft.grpo), bool(draft.value("beta"))
    return trainer_floor(hardware, parameters, precision=precision, lora=lora, reference=reference)


def _trainer(draft: Draft, hardware: HardwareSpec, parameters: int, floor: Floor, largest: float) -> Iterator[Finding]:
    cap = hardware.memory_cap_gib
    room = min(largest, cap) if cap else largest
    if floor.total <= room:
        return
    limit = f"the profile caps it at {cap:.3g} GiB" if cap and cap < largest else f"the largest has {largest:.3g} GiB"
    fixes = []
    if draft.lora is None and _floor(draft, hardware, parameters, lora=True).total <= room:
        fixes.append(Fix("Train a LoRA", {"use_lora": "on"}))
    if floor.reference and floor.total - floor.reference <= room:
        fixes.append(Fix("Keep no reference model: β = 0", {"beta": "0"}))
    yield stop(
        "profile",
        f"The trainer needs at least {floor.total:.3g} GiB on each GPU ({floor.words}), and {limit}.",
        _remedy(draft, hardware),
        *fixes,
    )


def _remedy(draft: Draft, hardware: HardwareSpec) -> str:
    if draft.lora is None:
        return "Train a LoRA, or choose a profile that shards, offloads or quantizes more."
    if hardware.quantization == Quantization.NONE:
        return "Choose a profile that shards, offloads or quantizes more."
    return "Choose a profile that shards or offloads more, or a smaller model."


def _beside(hardware: HardwareSpec, parameters: int, floor: Floor, largest: float) -> Iterator[Finding]:
    """vLLM on the trainer's GPUs: its weights must fit its share, and its share must fit beside the trainer."""
    server = hardware.vllm_server
    if hardware.rollout == Rollout.COLOCATE:
        share, sleeps = hardware.colocate_memory_utilization, hardware.colocate_sleep
        copy = colocated_copy(hardware, parameters)
    elif server is not None and server.shared:
        share, sleeps = server.gpu_memory_utilization, False
        copy = server_copy(server, parameters)
    else:
        return
    if copy > share * largest:
        yield stop(
            "profile",
            f"vLLM's copy of the weights takes {copy:.3g} GiB on each GPU, and its share of {share:g} of "
            f"{largest:.3g} GiB is {share * largest:.3g} GiB.",
            "Give vLLM a larger share in the profile, or split it over more GPUs.",
        )
    elif floor.total <= largest < floor.total + (copy if sleeps else share * largest):
        vllm = f"vLLM's copy of the weights ({copy:.3g} GiB)" if sleeps else f"vLLM's share ({share * largest:.3g} GiB)"
        yield stop(
            "profile",
            f"The trainer's {floor.total:.3g} GiB ({floor.words}) and {vllm} don't fit together into "
            f"{largest:.3g} GiB.",
            "Give vLLM a smaller share in the profile, or choose one that shards or offloads more.",
        )


def _server(draft: Draft, parameters: int, largest: float) -> Iterator[Finding]:
    server = draft.server
    if server is None or server.attached or server.shared or server.gpus < 1:
        return
    copy = server_copy(server, parameters)
    room = server.gpu_memory_utilization * largest
    if copy > room:
        yield stop(
            "profile",
            f"The vLLM server's weights take {copy:.3g} GiB on each of its GPUs, and its share of the largest is "
            f"{room:.3g} GiB.",
            "Choose a profile with more tensor parallelism or a larger share for the server.",
        )
