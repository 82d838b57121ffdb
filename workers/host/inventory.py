"""The inventory of this host: its resources, their use, and its models."""

import logging
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil

from workers.contract.run import jobs
from workers.models.stored import stored_models
from workers.settings import HostSettings
from workers.supervisor import commands
from workers.supervisor.processes import gpulinks, gpus, listening, procfs
from workers.supervisor.processes.gpulinks import Link
from workers.supervisor.processes.gpus import GpuReading, ReadGpus
from workers.supervisor.processes.loops import BackgroundCall

log = logging.getLogger(__name__)

MAX_PORTS = 500
FOLDER_ID = ".folder-id"
SHM = Path("/dev/shm")  # noqa: S108  # ranks and vLLM's processes exchange tensors there
GPU_TIMEOUT_S = 3.0
"""Seconds to wait for a driver that may never respond; without a response the announcement has no GPUs."""


class Inventory:
    def __init__(
        self,
        settings: HostSettings,
        *,
        read_gpus: ReadGpus = gpus.read,
        read_links: Callable[[], dict[int, list[Link]]] = gpulinks.read,
    ) -> None:
        self._settings = settings
        self._gpus = Gpus(read_gpus, read_links, own=settings.own_gpus)
        psutil.cpu_percent(None)  # the first call has nothing to compare with

    def read(self) -> dict[str, Any]:
        """Return the host's current state. Sizes are in MiB."""
        settings = self._settings
        memory = psutil.virtual_memory()
        disk = shutil.disk_usage(settings.runs_dir)
        entries, error = self._gpus.read()
        models = stored_models(settings.model_roots)
        return {
            "boot_id": procfs.boot_id(),
            "booted_at": psutil.boot_time(),
            "gpus": entries,
            "gpu_error": error,
            "driver": next((gpu["driver"] for gpu in entries), ""),
            "cpu_count": os.cpu_count() or 1,
            "cpu_slots": settings.slots,
            "cpu_percent": psutil.cpu_percent(None),
            "memory_mib": memory.total >> 20,
            "memory_used_mib": memory.used >> 20,
            "shm_mib": shutil.disk_usage(SHM).total >> 20 if SHM.is_dir() else None,
            "disk_free_mib": disk.free >> 20,
            "disk_total_mib": disk.total >> 20,
            "runs_dir": str(settings.runs_dir.absolute()),
            "runs_folder": folder_id(settings.runs_dir),
            "model_roots": [str(root) for root in settings.model_roots],
            "models": [model["model"] for model in models],
            "model_facts": models,
            "converts_to_gguf": _has_gguf_script(settings),
            "port_range": list(settings.port_range),
            "listening": listening.ports()[:MAX_PORTS],
            "programs": {name: list(argv) for name, argv in asdict(commands.programs(settings)).items()},
        }


def folder_id(runs_dir: Path) -> str:
    """Return the random id stored in `runs_dir`, and create it if it is missing. Hosts with the same id share the
    folder. Return "" if the id can't be stored."""
    path = runs_dir / FOLDER_ID
    try:
        with suppress(FileExistsError), tempfile.NamedTemporaryFile("w", dir=runs_dir, prefix=FOLDER_ID) as file:
            if not path.exists():
                file.write(uuid.uuid4().hex)
                file.flush()
                os.link(file.name, path)  # atomic: only the first of several hosts succeeds
        return path.read_text().strip()
    except OSError as error:
        log.warning("no id for %s: %s", runs_dir, error)
        return ""


def _has_gguf_script(settings: HostSettings) -> bool:
    script = settings.llama_cpp_dir / jobs.GGUF_SCRIPT if settings.llama_cpp_dir else None
    return script is not None and os.path.isfile(script) and os.access(script, os.R_OK)


class Gpus:
    """Reader of the GPUs that runs may use, and of the reasons why others can't be used."""

    def __init__(
        self,
        read_gpus: ReadGpus,
        read_links: Callable[[], dict[int, list[Link]]],
        *,
        own: frozenset[int] | None = None,
    ) -> None:
        self._read_gpus = read_gpus
        self._own = own
        self._read_links = read_links
        self._links: dict[int, list[Link]] = {}
        self._linked: tuple[str, ...] | None = None
        """UUIDs of the GPUs whose links are known; cabling doesn't change while a host runs."""
        self._job: BackgroundCall[list[GpuReading]] | None = None
        self._last_error = ""

    def read(self) -> tuple[list[dict[str, Any]], str]:
        """Return the usable GPUs, and why others can't be used, or "" if all can."""
        entries, error = self._query()
        if error and error != self._last_error:
            log.warning("GPUs: %s", error)
        self._last_error = error
        return entries, error

    def _query(self) -> tuple[list[dict[str, Any]], str]:
        is_new = self._job is None
        job = self._job = self._job or BackgroundCall("gpus", self._read)
        if not job.wait(GPU_TIMEOUT_S if is_new else 0.0):
            return [], "NVML isn't responding."  # retried later, but not by a second thread
        self._job = None
        if job.error is not None:
            return [], f"NVML isn't responding: {job.error}"
        readings = job.value()
        trouble = [f"GPU {gpu.index}: {gpu.trouble}" for gpu in readings if gpu.trouble]
        return [self._entry(gpu) for gpu in readings if not gpu.trouble], "; ".join(trouble)

    def _read(self) -> list[GpuReading]:
        readings = [gpu for gpu in self._read_gpus() if self._own is None or gpu.index in self._own]
        uuids = tuple(gpu.uuid for gpu in readings)
        if uuids != self._linked:
            self._links = self._read_links() if len(uuids) > 1 else {}
            self._linked = uuids
        return readings

    def _entry(self, gpu: GpuReading) -> dict[str, Any]:
        entry = asdict(gpu)
        del entry["trouble"]
        return {**entry, "links": [asdict(link) for link in self._links.get(gpu.index, ())]}
