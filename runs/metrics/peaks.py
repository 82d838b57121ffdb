"""The most memory that a run had in use on each of its GPUs, and what of it was whose. Pure arithmetic.

The trainer tells what torch reserved in each rank; a vLLM server takes its share of the whole card at the start; what
is left of the measured peak are CUDA contexts, NCCL's buffers and what was there before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract import HardwareSpec, Placement, Rollout

CLOSE = 0.9


@dataclass(frozen=True)
class GpuPeak:
    index: int
    memory_mib: float
    """Of the whole card."""
    peak_mib: float
    trainer_mib: float = 0.0
    """Reserved by torch in the trainer ranks there."""
    vllm_mib: float = 0.0
    """vLLM's share, taken at its start whether it is needed or not."""

    @property
    def rest_mib(self) -> float:
        return max(0.0, self.peak_mib - self.trainer_mib - self.vllm_mib)

    @property
    def parts(self) -> list[dict[str, Any]]:
        """For the memory bar."""
        named = (
            ("trainer", self.trainer_mib, "c1"),
            ("vLLM's share", self.vllm_mib, "c2"),
            ("rest", self.rest_mib, "c8"),
        )
        return [{"label": label, "value": value, "colour": colour} for label, value, colour in named if value >= 1]


def of_run(
    hardware: HardwareSpec,
    placement: Placement,
    *,
    measured: Mapping[int, float],
    reserved: Mapping[int, float],
    sizes: Mapping[int, float],
) -> list[GpuPeak]:
    """`measured`: GPU -> most in use, MiB; `reserved`: rank -> most that torch reserved; `sizes`: GPU -> its memory."""
    found = []
    ranks = dict(zip(placement.gpus, range(hardware.processes), strict=False))
    for index in placement.every_gpu:
        peak = measured.get(index)
        if peak is None:
            continue
        size = max(sizes.get(index, 0.0), peak)
        trainer = min(reserved.get(ranks.get(index, -1), 0.0), peak)
        share = _share(hardware, index in placement.server_gpus) * size
        if hardware.rollout == Rollout.COLOCATE and peak < trainer + CLOSE * share:
            # vLLM lives in the trainer's process, and what torch reserved there holds its share already.
            vllm = min(share, trainer)
            trainer -= vllm
        else:
            vllm = min(share, peak - trainer)
        found.append(GpuPeak(index, size, peak, trainer_mib=trainer, vllm_mib=vllm))
    return found


def _share(hardware: HardwareSpec, serves: bool) -> float:
    """Of a GPU's memory, taken by a vLLM that this run started there."""
    if hardware.rollout == Rollout.COLOCATE:
        return hardware.colocate_memory_utilization
    server = hardware.vllm_server
    if server is None or server.attached:
        return 0.0
    return server.gpu_memory_utilization if serves or server.shared else 0.0
