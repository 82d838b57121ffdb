"""A floor under the memory of each GPU: refused is only what can't possibly fit, with the numbers.

Weights count once for each copy that must lie there at the same time; activations, caches and CUDA contexts come on
top and are left out, so what passes here may still run out of memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from runs.preflight.draft import Draft
from runs.preflight.finding import Finding, Fix, stop
from runs.preflight.hosts import fitting_hosts
from workers.contract import HardwareSpec, Offload, Optimizer, Precision, Quantization, Rollout, Strategy

GIB = 2**30
HALF = 2
"""Bytes of a weight in 16 bits: the least that any unquantized copy takes."""
QUANTIZED = {Quantization.INT8: 1.0, Quantization.NF4: 0.5}
MOMENTS = {Optimizer.ADAMW: 2, Optimizer.ADAMW_8BIT: 1, Optimizer.ADAFACTOR: 0}
"""Bytes an optimizer keeps for each byte of a trained weight in 16 bits, at the least."""
SHARDS_WEIGHTS = (Strategy.ZERO3, Strategy.FSDP2)
SHARDS_GRADIENTS = (Strategy.ZERO2, *SHARDS_WEIGHTS)
SHARDS_MOMENTS = (Strategy.ZERO1, *SHARDS_GRADIENTS)


@dataclass(frozen=True)
class Floor:
    """GiB that a trainer process can't do without."""

    weights: float = 0.0
    reference: float = 0.0
    gradients: float = 0.0
    moments: float = 0.0

    @property
    def total(self) -> float:
        return self.weights + self.reference + self.gradients + self.moments

    @property
    def words(self) -> str:
        parts = {
            "weights": self.weights,
            "the reference model": self.reference,
            "gradients": self.gradients,
            "the optimizer": self.moments,
        }
        return ", ".join(f"{value:.3g} GiB of {name}" for name, value in parts.items() if value)


def check(draft: Draft) -> Iterator[Finding]:
    hardware, parameters = draft.hardware, draft.told("parameters")
    largest = max((gpu.memory_mib for host in fitting_hosts(draft) for gpu in host.gpus), default=0) / 1024
    if hardware is None or not parameters or not largest or (draft.inspection or {}).get("quantization"):
        return
    if hardware.trainer_gpus:
        floor = trainer_floor(draft, hardware, parameters)
        yield from _trainer(draft, hardware, parameters, floor, largest)
        yield from _beside(hardware, parameters, floor, largest)
    yield from _server(draft, parameters, largest)


def trainer_floor(draft: Draft, hardware: HardwareSpec, parameters: int, *, lora: bool | None = None) -> Floor:
    """What each process keeps of the model; `lora` tries another answer than the draft's."""
    has_lora = draft.lora is not None if lora is None else lora
    whole = HALF * (2 if _precision(draft, hardware) == Precision.FP32 else 1)
    share = GIB * max(hardware.processes, 1)
    weights = parameters * QUANTIZED.get(hardware.quantization, whole)
    kept = weights / (share if hardware.strategy in SHARDS_WEIGHTS else GIB)
    if hardware.offload == Offload.PARAMETERS:
        kept = 0.0
    if has_lora:
        return Floor(weights=kept)  # the adapter's own share is too small to count
    gradients = parameters * whole / (share if hardware.strategy in SHARDS_GRADIENTS else GIB)
    moments = MOMENTS[hardware.optimizer] * parameters * whole / (share if hardware.strategy in SHARDS_MOMENTS else GIB)
    return Floor(
        weights=kept,
        reference=kept if draft.value("beta") else 0.0,
        gradients=0.0 if hardware.offload == Offload.PARAMETERS else gradients,
        moments=moments if hardware.offload == Offload.NONE else 0.0,
    )


def _precision(draft: Draft, hardware: HardwareSpec) -> Precision:
    """fp32 where the form or the profile says so; weights of mixed precision are counted in 16 bits."""
    flags = [draft.grpo[name] for name in ("bf16", "fp16") if name in draft.grpo]
    if flags:
        return Precision.BF16 if any(flags) else Precision.FP32
    return hardware.precision


def _trainer(draft: Draft, hardware: HardwareSpec, parameters: int, floor: Floor, largest: float) -> Iterator[Finding]:
    cap = hardware.memory_cap_gib
    room = min(largest, cap) if cap else largest
    if floor.total <= room:
        return
    limit = f"the profile caps it at {cap:.3g} GiB" if cap and cap < largest else f"the largest has {largest:.3g} GiB"
    fixes = []
    if draft.lora is None and trainer_floor(draft, hardware, parameters, lora=True).total <= room:
        fixes.append(Fix("Train a LoRA", {"use_lora": "on"}))
    if floor.reference and floor.total - floor.reference <= room:
        fixes.append(Fix("Keep no reference model: β = 0", {"beta": "0"}))
    yield stop(
        "profile",
        f"The trainer needs at least {floor.total:.3g} GiB on each GPU ({floor.words}), and {limit}.",
        "Train a LoRA, or choose a profile that shards, offloads or quantizes more.",
        *fixes,
    )


def _beside(hardware: HardwareSpec, parameters: int, floor: Floor, largest: float) -> Iterator[Finding]:
    """vLLM on the trainer's own GPUs: its copy of the weights fits its share, and the share beside the trainer."""
    server = hardware.vllm_server
    if hardware.rollout == Rollout.COLOCATE:
        share, size, sleeps = (
            hardware.colocate_memory_utilization,
            hardware.colocate_tensor_parallel,
            hardware.colocate_sleep,
        )
        # vLLM takes a quantized policy as it is.
        copy = parameters * QUANTIZED.get(hardware.quantization, HALF) / GIB / max(size, 1)
    elif server is not None and server.shared:
        share, sleeps = server.gpu_memory_utilization, False
        copy = parameters * HALF / GIB / max(server.tensor_parallel, 1)
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
            f"The trainer's {floor.total:.3g} GiB ({floor.words}) and {vllm} don't fit beside each other into "
            f"{largest:.3g} GiB.",
            "Give vLLM a smaller share in the profile, or choose one that shards or offloads more.",
        )


def _server(draft: Draft, parameters: int, largest: float) -> Iterator[Finding]:
    server = draft.server
    if server is None or server.attached or server.shared or server.gpus < 1:
        return
    copy = parameters * HALF * (2 if server.dtype == "float32" else 1) / GIB / max(server.tensor_parallel, 1)
    room = server.gpu_memory_utilization * largest
    if copy > room:
        yield stop(
            "profile",
            f"The vLLM server's weights take {copy:.3g} GiB on each of its GPUs, and its share of the largest is "
            f"{room:.3g} GiB.",
            "Choose a profile with more tensor parallelism or a larger share for the server.",
        )
