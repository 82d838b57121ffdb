"""The one place that reads the GPUs (NVML). A host without a driver has none; that is an answer, not an error.

Calls may hang on a driver in trouble, so they are made in threads. NVML names processes by the host's pids, wrong
inside a container: freedom is proved by memory, never by pid.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pynvml


@dataclass(frozen=True)
class GpuReading:
    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int
    util_percent: int | None
    power_w: float | None
    temperature_c: int | None
    driver: str


class GpuError(Exception):
    """NVML is there but doesn't answer."""


_lock = threading.Lock()
_initialised_in: int | None = None
"""Pid: NVML's handles don't survive a fork."""


def _after_fork() -> None:
    """A thread that read the GPUs while another one forked is not in the child, and would hold the lock for ever."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

_ABSENT = (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED, pynvml.NVML_ERROR_NO_PERMISSION)


def read() -> list[GpuReading]:
    """Every GPU of this host, in NVML's (PCI bus) order."""
    try:
        with _lock:
            if not _initialise():
                return []
            driver = str(pynvml.nvmlSystemGetDriverVersion())
            return [_read_one(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as error:
        raise GpuError(str(error)) from error


def _initialise() -> bool:
    global _initialised_in
    if _initialised_in == os.getpid():
        return True
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in _ABSENT:
            return False
        raise
    _initialised_in = os.getpid()
    return True


def _read_one(index: int, driver: str) -> GpuReading:
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(device)
    util = _optional(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu))
    power = _optional(lambda: round(pynvml.nvmlDeviceGetPowerUsage(device) / 1000, 1))
    heat = _optional(lambda: int(pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU)))
    return GpuReading(
        index=index,
        uuid=str(pynvml.nvmlDeviceGetUUID(device)),
        name=str(pynvml.nvmlDeviceGetName(device)),
        memory_mib=int(memory.total) >> 20,
        used_mib=int(memory.used) >> 20,
        util_percent=util,
        power_w=power,
        temperature_c=heat,
        driver=driver,
    )


N = TypeVar("N", int, float)


def _optional(call: Callable[[], N]) -> N | None:
    """Cards and virtual GPUs differ in what they tell."""
    try:
        return call()
    except pynvml.NVMLError:
        return None


def used_mib(readings: Sequence[GpuReading]) -> dict[int, int]:
    return {gpu.index: gpu.used_mib for gpu in readings}
