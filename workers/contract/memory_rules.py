"""Lower bounds of the GPU memory of a trainer process and of vLLM's weights, in GiB.

Counts each copy of the weights that must exist at the same time; activations, caches and CUDA contexts come on top, so
what fits here may still run out of memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from workers.contract.hardware import HardwareSpec, Offload, Optimizer, Precision, Quantization, ServerSpec, Strategy

GIB = 2**30
HALF = 2
"""Bytes per 16-bit weight, the minimum of an unquantized copy."""
QUANTIZED = {Quantization.INT8: 1.0, Quantization.NF4: 0.5}
MOMENTS = {Optimizer.ADAMW: 2, Optimizer.ADAMW_8BIT: 1, Optimizer.ADAFACTOR: 0}
"""The least bytes that an optimizer keeps per byte of a trained 16-bit weight."""
SHARDS_WEIGHTS = (Strategy.ZERO3, Strategy.FSDP2)
SHARDS_GRADIENTS = (Strategy.ZERO2, *SHARDS_WEIGHTS)
SHARDS_MOMENTS = (Strategy.ZERO1, *SHARDS_GRADIENTS)


@dataclass(frozen=True)
class Floor:
    """The minimum of a trainer process, in GiB."""

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


def trainer_floor(
    hardware: HardwareSpec, parameters: int, *, precision: Precision, lora: bool, reference: bool
) -> Floor:
    """The parts of the model in each process; `reference`: including a reference model."""
    weight_bytes = HALF * (2 if precision == Precision.FP32 else 1)
    share = GIB * max(hardware.processes, 1)
    weights = parameters * QUANTIZED.get(hardware.quantization, weight_bytes)
    weights_gib = weights / (share if hardware.strategy in SHARDS_WEIGHTS else GIB)
    if hardware.offload == Offload.PARAMETERS:
        weights_gib = 0.0
    if lora:
        return Floor(weights=weights_gib)  # the adapter's own share is negligible
    gradients = parameters * weight_bytes / (share if hardware.strategy in SHARDS_GRADIENTS else GIB)
    moments = (
        MOMENTS[hardware.optimizer]
        * parameters
        * weight_bytes
        / (share if hardware.strategy in SHARDS_MOMENTS else GIB)
    )
    return Floor(
        weights=weights_gib,
        reference=weights_gib if reference else 0.0,
        gradients=0.0 if hardware.offload == Offload.PARAMETERS else gradients,
        moments=moments if hardware.offload == Offload.NONE else 0.0,
    )


def colocated_copy(hardware: HardwareSpec, parameters: int) -> float:
    """vLLM's weights on each GPU inside the trainer; a quantized policy is used as it is."""
    bytes_each = QUANTIZED.get(hardware.quantization, HALF)
    return parameters * bytes_each / GIB / max(hardware.colocate_tensor_parallel, 1)


def server_copy(server: ServerSpec, parameters: int) -> float:
    """A vLLM server's weights on each of its GPUs."""
    return parameters * HALF * (2 if server.dtype == "float32" else 1) / GIB / max(server.tensor_parallel, 1)
