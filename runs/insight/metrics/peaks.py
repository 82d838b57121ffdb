"""Peak memory of each of a run's GPUs, split by use. Pure arithmetic.

The trainer reports what torch reserved in each rank, and a vLLM server takes its share of the GPU's memory at its
start. The rest of the measured peak is CUDA contexts, NCCL buffers and memory that was already in use.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from controlplane.catalogue.hardware.inventory import number
from workers.contract.run.hardware import HardwareSpec, Rollout
from workers.contract.run.spec import Placement

CLOSE_SHARE = 0.9


@dataclass(frozen=True)
class GpuPeak:
    index: int
    memory_mib: float
    peak_mib: float
    trainer_mib: float = 0.0
    """Memory that torch reserved in the trainer's ranks on this GPU."""
    vllm_mib: float = 0.0
    """vLLM's share, reserved at its start whether needed or not."""

    @property
    def rest_mib(self) -> float:
        return max(0.0, self.peak_mib - self.trainer_mib - self.vllm_mib)

    @property
    def parts(self) -> list[dict[str, Any]]:
        segments = (
            ("trainer", self.trainer_mib, "c1"),
            ("vLLM's share", self.vllm_mib, "c2"),
            ("rest", self.rest_mib, "c8"),
        )
        return [{"label": label, "value": value, "colour": colour} for label, value, colour in segments if value >= 1]


def of_run(
    hardware: HardwareSpec,
    placement: Placement,
    *,
    measured: Mapping[int, float],
    reserved: Mapping[int, float],
    sizes: Mapping[int, float],
) -> list[GpuPeak]:
    """Split each GPU's peak memory into its parts, in MiB. `measured` maps a GPU to its peak usage, `reserved` a rank
    to torch's peak of reserved memory, and `sizes` a GPU to its total memory."""
    peaks = []
    ranks = dict(zip(placement.gpus, range(hardware.processes), strict=False))
    for index in placement.every_gpu:
        peak = measured.get(index)
        if peak is None:
            continue
        trainer = reserved.get(ranks.get(index, -1), 0.0)
        size = max(sizes.get(index, 0.0), peak)
        # Unlike torch, samples miss short peaks. Torch's figure exceeds the GPU's memory only if vLLM sleeps.
        peak = max(peak, trainer) if trainer <= size else peak
        trainer = min(trainer, peak)
        share = _share(hardware, index in placement.server_gpus) * size
        if hardware.rollout == Rollout.COLOCATE and peak < trainer + CLOSE_SHARE * share:
            # With vLLM in the trainer's process, torch's reserved memory includes its share.
            vllm = min(share, trainer)
            trainer -= vllm
        else:
            vllm = min(share, peak - trainer)
        peaks.append(GpuPeak(index, size, peak, trainer_mib=trainer, vllm_mib=vllm))
    return peaks


def with_receipt(in_use: Mapping[int, float], receipt: Mapping[str, Any] | None) -> dict[int, float]:
    """Return each GPU's peak in MiB, from samples and from the kill receipt, which misses no peak."""
    peaks = dict(in_use)
    for gpu in (receipt or {}).get("gpus") or ():
        index, peak = str(gpu.get("gpu", "")), number(gpu.get("peak_mib"))
        if index.isdigit() and peak is not None:
            peaks[int(index)] = max(peak, peaks.get(int(index), 0.0))
    return peaks


def _share(hardware: HardwareSpec, serves: bool) -> float:
    """Return the share of a GPU's memory that a vLLM started by this run takes there."""
    if hardware.rollout == Rollout.COLOCATE:
        return hardware.colocate_memory_utilization
    server = hardware.vllm_server
    if server is None or server.attached:
        return 0.0
    return server.gpu_memory_utilization if serves or server.shared else 0.0
