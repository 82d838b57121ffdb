"""Teardown of an attempt: kills its processes, verifies that they are gone, proves the GPUs free, and writes the
receipt.

Used by the supervisor, and by the reaper after a supervisor has died.
"""

import queue
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workers.contract.reports.lines import GpuReceipt, Receipt
from workers.settings import HostSettings
from workers.supervisor.processes import listening
from workers.supervisor.processes.gpus import GpuError, ReadGpus, used_mib
from workers.supervisor.processes.killing import Kill
from workers.supervisor.processes.loops import Loop
from workers.supervisor.processes.procfs import Process

GPU_INTERVAL_S = 0.15


class Teardown:
    """Teardown of one attempt, driven by tick() from the main thread."""

    def __init__(
        self,
        find: Callable[[], list[Process]],
        settings: HostSettings,
        *,
        now: float,
        baselines: Mapping[int, int],
        peaks: Mapping[int, int],
        ports: Sequence[int],
        read_gpus: ReadGpus,
        is_orphan: Callable[[Process], bool] = lambda process: False,
        nobody_left: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._started_at = now
        self._baselines = baselines
        self._peaks = peaks
        self._ports = tuple(ports)
        self._read_gpus = read_gpus
        self._samples: queue.SimpleQueue[tuple[float, dict[int, int]]] = queue.SimpleQueue()
        self._sampler: Loop | None = None
        self._proof: GpuProof | None = None
        self._kill = Kill(
            find,
            now=now,
            grace_s=settings.term_grace_s,
            deadline_s=settings.kill_deadline_s,
            is_orphan=is_orphan,
            nobody_left=nobody_left,
        )

    @property
    def is_verifying(self) -> bool:
        return self._proof is not None

    def tick(self, now: float) -> Receipt | None:
        """Continue; return the receipt once everything is proved or the deadlines have passed."""
        if self._proof is None:
            if not self._kill.tick(now):
                return None
            self._proof = self._begin_proof(now)
        while not self._samples.empty():
            self._proof.sample(*self._samples.get())
        if not self._proof.is_finished(now):
            return None
        if self._sampler is not None:
            self._sampler.stop()
        return self._receipt(now, self._proof)

    def _begin_proof(self, now: float) -> "GpuProof":
        if self._baselines:
            self._sampler = Loop("gpu-proof", self._sample)
            self._sampler.start()
        return GpuProof(
            baselines=self._baselines,
            peaks=self._peaks,
            margin_mib=self._settings.gpu_free_margin_mib,
            started_at=self._started_at,
            deadline=now + self._settings.gpu_free_deadline_s,
        )

    def _sample(self, now: float) -> float:
        # In its own thread, because a failing driver may never respond.
        try:
            self._samples.put((time.monotonic(), used_mib(self._read_gpus())))
        except GpuError:
            return 1.0
        return GPU_INTERVAL_S

    def _receipt(self, now: float, proof: "GpuProof") -> Receipt:
        gone_at = self._kill.gone_at
        return Receipt(
            seconds_to_gone=round((now if gone_at is None else gone_at) - self._started_at, 3),
            processes_ended=len(self._kill.ended) - len(self._kill.survivors),
            orphans_found=len(self._kill.orphans),
            survivors=self._kill.survivors,
            gpus=proof.receipts(),
            port_free=all(listening.port_is_free(port) for port in self._ports) if self._ports else None,
            free=gone_at is not None and proof.is_free(),
        )


@dataclass
class _Gpu:
    before_mib: int
    peak_mib: int
    after_mib: int
    low_since: float | None = None
    low_samples: int = 0


@dataclass
class GpuProof:
    """Proof that the GPUs are free: two consecutive samples within a margin of the baseline, before a deadline. Without
    samples nothing is proved."""

    baselines: Mapping[int, int]
    peaks: Mapping[int, int]
    margin_mib: int
    started_at: float
    deadline: float
    _gpus: dict[int, _Gpu] = field(init=False)

    def __post_init__(self) -> None:
        self._gpus = {
            index: _Gpu(mib, max(mib, self.peaks.get(index, mib)), self.peaks.get(index, mib))
            for index, mib in self.baselines.items()
        }

    def sample(self, time_s: float, used_mib: Mapping[int, int]) -> None:
        """Record a sample. `used_mib`: memory in use in MiB, by GPU index."""
        for index, gpu in self._gpus.items():
            if index not in used_mib:
                continue
            gpu.after_mib = used_mib[index]
            gpu.peak_mib = max(gpu.peak_mib, gpu.after_mib)
            if gpu.after_mib > gpu.before_mib + self.margin_mib:
                gpu.low_since, gpu.low_samples = None, 0
                continue
            gpu.low_since = time_s if gpu.low_since is None else gpu.low_since
            gpu.low_samples += 1

    def is_free(self) -> bool:
        return all(gpu.low_samples >= 2 for gpu in self._gpus.values())

    def is_finished(self, now: float) -> bool:
        return self.is_free() or now >= self.deadline

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
