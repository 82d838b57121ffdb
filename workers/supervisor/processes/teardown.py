"""Ends an attempt's processes: kills them, verifies that, proves the GPUs free, and makes the receipt.

Used by the supervisor, and by the reaper after a supervisor has died.
"""

import queue
import time
from collections.abc import Callable, Mapping, Sequence

from workers.contract.reports.lines import Receipt
from workers.settings import HostSettings
from workers.supervisor.processes import listening
from workers.supervisor.processes.gpus import GpuError, GpuReading, used_mib
from workers.supervisor.processes.killing import Kill
from workers.supervisor.processes.loops import Loop
from workers.supervisor.processes.procfs import Process
from workers.supervisor.processes.verify import GpuProof

GPU_INTERVAL_S = 0.15


class Teardown:
    """The end of one attempt's processes, as a tick() of the main thread."""

    def __init__(
        self,
        find: Callable[[], list[Process]],
        settings: HostSettings,
        *,
        now: float,
        baselines: Mapping[int, int],
        peaks: Mapping[int, int],
        ports: Sequence[int],
        read_gpus: Callable[[], list[GpuReading]],
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
    def verifying(self) -> bool:
        return self._proof is not None

    def tick(self, now: float) -> Receipt | None:
        """Continue; return the receipt once everything is proved or the deadlines have passed."""
        if self._proof is None:
            if not self._kill.tick(now):
                return None
            self._proof = self._begin_proof(now)
        while not self._samples.empty():
            self._proof.sample(*self._samples.get())
        if not self._proof.finished(now):
            return None
        if self._sampler is not None:
            self._sampler.stop()
        return self._receipt(now, self._proof)

    def _begin_proof(self, now: float) -> GpuProof:
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
        # In its own thread, because a failing driver may never answer.
        try:
            self._samples.put((time.monotonic(), used_mib(self._read_gpus())))
        except GpuError:
            return 1.0
        return GPU_INTERVAL_S

    def _receipt(self, now: float, proof: GpuProof) -> Receipt:
        gone_at = self._kill.gone_at
        return Receipt(
            seconds_to_gone=round((now if gone_at is None else gone_at) - self._started_at, 3),
            processes_ended=len(self._kill.ended) - len(self._kill.survivors),
            orphans_found=len(self._kill.orphans),
            survivors=self._kill.survivors,
            gpus=proof.receipts(),
            port_free=all(listening.port_is_free(port) for port in self._ports) if self._ports else None,
            free=gone_at is not None and proof.free(),
        )
