"""Estimates of a run's memory before it starts: the parts on each GPU, the host's memory, and the disk for checkpoints.

Standard library only. `estimate` takes the hardware and settings; the numbers behind it are in `trainer` and
`vllm`, the parameter counts in `shapes`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workers.contract.memory.parts import Part, Parts, Settings
from workers.contract.memory.shapes import Shape, adapter
from workers.contract.memory.trainer import (
    CONTEXT_GIB,
    GIB,
    SYNC_BUFFER_GIB,
    merges,
    optimizer_bytes,
    peak,
    sends_weights,
    steady,
)
from workers.contract.memory.vllm import ASLEEP_GIB, Serving, serving
from workers.contract.run.hardware import ZERO, HardwareSpec, Offload, Quantization, Rollout, Strategy

PROCESS_RAM_GIB = 3.0
"""Host memory of a trainer process without offloading: libraries, the dataset and pinned buffers."""


@dataclass(frozen=True)
class GpuEstimate:
    role: str
    """`trainer`, `server` or `trainer and vLLM`."""
    card_gib: float
    phase: str
    """Phase with the highest memory use; "" for a server, whose memory stays the same."""
    parts: Mapping[Part, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def needed(self) -> float:
        """GiB without the blocks that the allocator returns when memory runs short."""
        return self.total - self.parts.get(Part.ALLOCATOR, 0.0)

    @property
    def trainer(self) -> float:
        """GiB of the trainer alone, without vLLM's share."""
        return self.total - self.parts.get(Part.VLLM, 0.0)

    @property
    def largest(self) -> Part:
        return max(self.parts, key=lambda part: self.parts[part])


@dataclass(frozen=True)
class Estimate:
    gpus: tuple[GpuEstimate, ...]
    """The trainer's GPUs by rank, followed by the servers' GPUs."""
    parameters: int
    trained: int
    ram_gib: float
    checkpoint_gib: float
    serving: Serving | None
    """Memory of vLLM on one of its GPUs; None if the run starts no vLLM."""


def estimate(
    shape: Shape, hardware: HardwareSpec, settings: Settings, *, cards: Sequence[float], servers: Sequence[float] = ()
) -> Estimate:
    """Estimate a run's memory. `cards`: the GiB of each trainer GPU by rank, before the profile's memory cap.
    `servers`: the GiB of each of the servers' own GPUs."""
    if cap := hardware.memory_cap_gib:  # the cap applies only to torch
        cards = [min(card_gib, cap + CONTEXT_GIB) for card_gib in cards]
    vllm = _serving(shape, hardware, settings, [*servers, *cards])
    vllm_gib = vllm.share if vllm and _cache_gib(hardware) else None
    gpus = [_trainer(shape, hardware, settings, card_gib, rank, vllm_gib) for rank, card_gib in enumerate(cards)]
    gpus += [_server(hardware, card_gib, vllm_gib) for card_gib in servers]
    trained = adapter(shape, settings.lora) if settings.lora else shape.total
    ram_gib, saved_gib = _ram(shape, hardware, trained), checkpoint_gib(shape, hardware, settings)
    return Estimate(tuple(gpus), shape.total, trained, ram_gib, saved_gib, vllm)


def _trainer(
    shape: Shape, hardware: HardwareSpec, settings: Settings, card_gib: float, rank: int, vllm_gib: float | None
) -> GpuEstimate:
    """Estimate the memory of a trainer's GPU. `vllm_gib`: vLLM's memory if its KV cache has a fixed size; None if vLLM
    gets a share of the GPU."""
    trainer_peak = peak(shape, hardware, settings, main=rank == 0)
    server = hardware.vllm_server
    share = 0.0 if server and not server.shared else hardware.vllm_share or 0.0
    if not share:
        return GpuEstimate("trainer", card_gib, trainer_peak.phase, trainer_peak.parts)
    server_gib = share * card_gib if vllm_gib is None else vllm_gib
    if hardware.rollout is Rollout.COLOCATE and hardware.colocate_sleep:
        parts = steady(shape, hardware, settings)
        if sum(parts.values()) + server_gib > trainer_peak.total + ASLEEP_GIB:
            return GpuEstimate(
                "trainer and vLLM", card_gib, "while completions are generated", {**parts, Part.VLLM: server_gib}
            )
        server_gib = ASLEEP_GIB
    return GpuEstimate("trainer and vLLM", card_gib, trainer_peak.phase, {**trainer_peak.parts, Part.VLLM: server_gib})


def _cache_gib(hardware: HardwareSpec) -> float | None:
    """Return the KV cache size that a profile sets for the run's own servers, or None if it sets none."""
    server = hardware.vllm_server
    return server.kv_cache_gib if server and not server.attached else None


def _server(hardware: HardwareSpec, card_gib: float, vllm_gib: float | None) -> GpuEstimate:
    server = hardware.vllm_server
    share = server.gpu_memory_utilization if server else 0.0
    parts: Parts = {Part.VLLM: share * card_gib if vllm_gib is None else vllm_gib}
    if sends_weights(hardware):
        parts[Part.COMMUNICATION] = 2 * SYNC_BUFFER_GIB
    return GpuEstimate("server", card_gib, "", parts)


def _serving(shape: Shape, hardware: HardwareSpec, settings: Settings, cards: Sequence[float]) -> Serving | None:
    server = hardware.vllm_server
    if not cards or (server and server.attached):
        return None
    trained = adapter(shape, settings.lora) if settings.lora and not merges(hardware) else 0
    if hardware.rollout is Rollout.COLOCATE:
        share, parallel, weight_bytes = hardware.colocate_memory_utilization, hardware.colocate_tensor_parallel, 2.0
        if hardware.quantization is not Quantization.NONE:
            weight_bytes = 0.6 if hardware.quantization is Quantization.NF4 else 1.0
    elif server:
        share, parallel = server.gpu_memory_utilization, server.tensor_parallel
        weight_bytes = 4.0 if server.dtype == "float32" else 2.0
    else:
        return None
    card_gib = cards[0]
    return serving(
        shape,
        share_gib=share * card_gib,
        card_gib=card_gib,
        tensor_parallel=parallel,
        weight_bytes=weight_bytes,
        adapter_weights=trained,
        cache_gib=_cache_gib(hardware),
    )


def _ram(shape: Shape, hardware: HardwareSpec, trained: int) -> float:
    base = PROCESS_RAM_GIB * max(hardware.processes, 1)
    if hardware.offload is Offload.NONE:
        return base
    if hardware.strategy is Strategy.FSDP2:
        return base + (4 * shape.total + 12 * trained) / GIB
    # fp32 weights, both moments and gradients of what is trained; ZeRO-3 with parameters: the 16-bit weights as well.
    offloaded = 16 * trained
    if hardware.offload is Offload.PARAMETERS:
        offloaded += 2 * shape.total
    return base + offloaded / GIB


def checkpoint_gib(shape: Shape, hardware: HardwareSpec, settings: Settings) -> float:
    """Estimate the size of a checkpoint on disk: the trained weights and the optimizer states."""
    trained = adapter(shape, settings.lora) if settings.lora else shape.total
    weights = 2 if hardware.strategy in ZERO else 4
    return trained * (weights + optimizer_bytes(hardware, settings)) / GIB
