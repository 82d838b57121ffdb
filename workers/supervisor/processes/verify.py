"""Proves that the GPUs are free: two consecutive samples within a margin of the baseline, before a deadline."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from workers.contract.reports.lines import GpuReceipt


@dataclass
class _Gpu:
    before_mib: int
    peak_mib: int
    after_mib: int
    low_since: float | None = None
    low_samples: int = 0


@dataclass
class GpuProof:
    """The proof, from the samples of the NVML thread. Without samples nothing is proved."""

    baselines: Mapping[int, int]
    peaks: Mapping[int, int]
    margin_mib: int
    started_at: float
    deadline: float
    _gpus: dict[int, _Gpu] = field(init=False)

    def __post_init__(self) -> None:
        self._gpus = {
            index: _Gpu(before, max(before, self.peaks.get(index, before)), self.peaks.get(index, before))
            for index, before in self.baselines.items()
        }

    def sample(self, at: float, used_mib: Mapping[int, int]) -> None:
        """Take a sample: GPU index -> MiB in use."""
        for index, gpu in self._gpus.items():
            if index not in used_mib:
                continue
            gpu.after_mib = used_mib[index]
            gpu.peak_mib = max(gpu.peak_mib, gpu.after_mib)
            if gpu.after_mib > gpu.before_mib + self.margin_mib:
                gpu.low_since, gpu.low_samples = None, 0
                continue
            gpu.low_since = at if gpu.low_since is None else gpu.low_since
            gpu.low_samples += 1

    def free(self) -> bool:
        return all(gpu.low_samples >= 2 for gpu in self._gpus.values())

    def finished(self, now: float) -> bool:
        return self.free() or now >= self.deadline

    def receipts(self) -> tuple[GpuReceipt, ...]:
        return tuple(
            GpuReceipt(
                gpu=str(index),
                before_mib=gpu.before_mib,
                peak_mib=gpu.peak_mib,
                after_mib=gpu.after_mib,
                seconds_to_free=self._seconds(gpu),
            )
            for index, gpu in self._gpus.items()
        )

    def _seconds(self, gpu: _Gpu) -> float | None:
        if gpu.low_since is None or gpu.low_samples < 2:
            return None
        return round(max(0.0, gpu.low_since - self.started_at), 3)
