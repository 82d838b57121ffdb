"""Sampling of the host in a thread: CPU, memory, and each leased GPU.

GPUs are read more often than samples are sent, so that a sample has the peak memory in use since the previous one.
"""

import logging
from collections.abc import Callable, Collection

import psutil

from workers.supervisor.processes.gpus import GpuError, GpuReading, ReadGpus

log = logging.getLogger(__name__)

MAX_INTERVAL_S = 1.0


class SystemSampler:
    def __init__(
        self,
        gpus: Collection[int],
        *,
        read_gpus: ReadGpus,
        interval_s: float,
        on_sample: Callable[[dict[str, float]], None],
    ) -> None:
        self._gpus = frozenset(gpus)
        self._read_gpus = read_gpus
        self._interval_s = interval_s
        self._on_sample = on_sample
        self._gpu_trouble = False
        self._peaks: dict[str, float] = {}
        """Peaks of the memory in use since the last sample."""
        self._due = float("-inf")
        psutil.cpu_percent(None)  # the first call has nothing to compare with

    def tick(self, now: float) -> float:
        metrics: dict[str, float] = {}
        for gpu in self._leased():
            metrics |= _gpu_metrics(gpu)
        for name, value in metrics.items():
            if name.endswith("/memory_mib"):
                self._peaks[name] = max(value, self._peaks.get(name, 0.0))
        if now >= self._due:
            host = {
                "host/cpu_percent": psutil.cpu_percent(None),
                "host/memory_mib": float(psutil.virtual_memory().used >> 20),
            }
            self._on_sample({**host, **metrics, **self._peaks})
            self._peaks = {}
            self._due = now + self._interval_s
        return min(MAX_INTERVAL_S, max(self._due - now, 0.0))

    def _leased(self) -> list[GpuReading]:
        if not self._gpus:
            return []
        try:
            readings = self._read_gpus()
        except GpuError as error:
            if not self._gpu_trouble:
                log.warning("NVML isn't responding: %s", error)
            self._gpu_trouble = True
            return []
        return [gpu for gpu in readings if gpu.index in self._gpus]


def _gpu_metrics(gpu: GpuReading) -> dict[str, float]:
    values = {
        "memory_mib": gpu.used_mib,
        "util_percent": gpu.util_percent,
        "power_w": gpu.power_w,
        "temperature_c": gpu.temperature_c,
    }
    return {f"gpu/{gpu.index}/{name}": float(value) for name, value in values.items() if value is not None}
