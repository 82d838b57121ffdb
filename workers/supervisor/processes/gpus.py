"""Readings of the GPUs through NVML. A host without a driver has no GPUs, which is not an error.

Calls may hang if a driver fails, so they are made in threads. NVML identifies processes by the host's pids, which are
wrong inside containers, so GPUs are proved free by memory and never by pid.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")


@dataclass(frozen=True)
class GpuReading:
    index: int
    uuid: str
    name: str
    memory_mib: int
    used_mib: int | None
    util_percent: int | None
    power_w: float | None
    temperature_c: int | None
    driver: str
    trouble: str = ""
    """Reason why its memory can't be read; empty if it can."""
    capability: str = ""
    """CUDA's compute capability, such as 9.0; GPUs from 8.0 support bf16."""


ReadGpus = Callable[[], list[GpuReading]]


class GpuError(Exception):
    """Raised when NVML is installed but fails."""


_lock = threading.Lock()
_initialised_in: int | None = None
"""Pid of the process that initialised NVML, whose handles don't survive a fork."""


def _after_fork() -> None:
    # A thread that held the lock during a fork doesn't exist in the child, where the lock would stay locked forever.
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)

_ABSENT_DRIVER_CODES = (
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_NO_PERMISSION,
)


def read() -> list[GpuReading]:
    """Return readings of all GPUs of this host, in PCI bus order. A failing GPU doesn't affect the others."""
    with nvml() as available:
        if not available:
            return []
        driver = optional(lambda: str(pynvml.nvmlSystemGetDriverVersion())) or ""
        return [_read_gpu(index, driver) for index in range(pynvml.nvmlDeviceGetCount())]


@contextmanager
def nvml() -> Iterator[bool]:
    """Hold the lock for NVML calls, and yield whether NVML is installed. Raises GpuError if an NVML call fails."""
    try:
        with _lock:
            yield _initialise()
    except pynvml.NVMLError as error:
        raise GpuError(str(error)) from error


def _initialise() -> bool:
    global _initialised_in
    if _initialised_in == os.getpid():
        return True
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value in _ABSENT_DRIVER_CODES:
            return False
        raise
    _initialised_in = os.getpid()
    return True


def _read_gpu(index: int, driver: str) -> GpuReading:
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
        memory = _memory(device)
        total, used_memory = int(memory.total) >> 20, int(memory.used) >> 20
    except pynvml.NVMLError as error:
        # A GPU whose memory can't be read can't be proved free, so no run may use it.
        return GpuReading(index, "", f"GPU {index}", 0, None, None, None, None, driver, trouble=str(error))
    return GpuReading(
        index=index,
        uuid=optional(lambda: str(pynvml.nvmlDeviceGetUUID(device))) or "",
        name=optional(lambda: str(pynvml.nvmlDeviceGetName(device))) or f"GPU {index}",
        memory_mib=total,
        used_mib=used_memory,
        util_percent=optional(lambda: int(pynvml.nvmlDeviceGetUtilizationRates(device).gpu)),
        power_w=optional(lambda: round(pynvml.nvmlDeviceGetPowerUsage(device) / 1000, 1)),
        temperature_c=optional(lambda: int(pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU))),
        driver=driver,
        capability=optional(lambda: "{}.{}".format(*pynvml.nvmlDeviceGetCudaComputeCapability(device))) or "",
    )


def _memory(device: Any) -> Any:
    """Read the memory in use, excluding the driver's own reserve, which version 1 of the call includes."""
    try:
        return pynvml.nvmlDeviceGetMemoryInfo(device, version=pynvml.nvmlMemory_v2)
    except pynvml.NVMLError_FunctionNotFound:
        return pynvml.nvmlDeviceGetMemoryInfo(device)  # a driver before 510


def optional(call: Callable[..., T], *arguments: Any) -> T | None:
    """Return the result of an NVML call, or None if the card, virtual GPU or driver doesn't support it."""
    try:
        return call(*arguments)
    except pynvml.NVMLError:
        return None


def used_mib(readings: Sequence[GpuReading]) -> dict[int, int]:
    """Return the memory in use in MiB of each GPU that could be read, by GPU index."""
    return {gpu.index: gpu.used_mib for gpu in readings if gpu.used_mib is not None}
