"""Jobs: work on a run's model other than training. Each kind is a module with a `run` function."""

from __future__ import annotations

import importlib
import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.run.jobs import ARCHIVE, BENCHMARK, GGUF, MERGE, PUSH, SERVE, WARM
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import data
from workers.trainer.configuration.spec import SpecError, path_of
from workers.trainer.recording.metrics import LineFile

ADAPTER_CONFIG = "adapter_config.json"
LEAST_FREE = 256 << 20
"""Bytes that a job leaves free on the disk."""
PROGRESS_EVERY_S = 0.5
_MODULES = {
    MERGE: "merging",
    ARCHIVE: "archiving",
    PUSH: "pushing",
    BENCHMARK: "benchmarking",
    GGUF: "converting",
    SERVE: "serving",
    WARM: "warming",
}


class Stopped(Exception):
    """Raised by a job that was stopped, once it has undone what it had begun."""


@dataclass
class Job:
    """One attempt's job, and its reports: stage, progress, result."""

    spec: AttemptSpec
    folder: Path
    metrics: LineFile
    rows: data.Rows | None
    """None for kinds that need no rows (workers.contract.run.jobs.KINDS)."""
    total: int = 1
    _reported: float = field(default=float("-inf"), repr=False)

    @property
    def base(self) -> str:
        """The model's folder or hub id."""
        return path_of(self.spec.run.model)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder: an adapter, or all weights."""
        return self.folder.parent.parent / self.spec.run.start_from

    @property
    def is_adapter(self) -> bool:
        return (self.checkpoint / ADAPTER_CONFIG).is_file()

    def check_room(self, size: float, what: str) -> None:
        """Raise SpecError unless the job's disk has `size` bytes free for `what`."""
        needed, free = size + LEAST_FREE, shutil.disk_usage(self.folder).free
        if free < needed:
            raise SpecError(
                f"{what} needs {needed / 1e9:.1f} GB in {self.folder}, and {free / 1e9:.1f} GB are free. "
                "Delete models that you no longer need, or free space on the host."
            )

    def stage(self, text: str) -> None:
        self.metrics.event(EventKind.STAGE, {"stage": text})

    def begin(self, total: int) -> None:
        """Report the job as running; `progress` counts up to `total`."""
        self.total = max(1, total)
        self.metrics.event(EventKind.TRAINING, {"max_steps": self.total, "step": 0}, step=0)

    def progress(self, done: int) -> None:
        now = time.monotonic()
        if done >= self.total or now - self._reported >= PROGRESS_EVERY_S:
            self._reported = now
            self.metrics.log(min(done, self.total), {"job/done": float(done)})

    def result(self, text: str, **facts: Any) -> None:
        """Report a result: `text` for people, `facts` for pages."""
        self.metrics.event(EventKind.RESULT, {"text": text, "facts": facts})

    @property
    def stop_requested(self) -> bool:
        return (self.folder / FileName.STOP).exists()

    def end(self, how: str = "done") -> None:
        self.metrics.event(EventKind.TRAINED, {"how": how}, step=self.total)


def run(job: Job) -> None:
    """Raises TrainerError with a sentence for people."""
    module = importlib.import_module(f"workers.trainer.jobs.{_MODULES[job.spec.run.kind]}")
    try:
        module.run(job)
    except Stopped:
        job.end("stopped")
    else:
        job.end()


def flush_to_disk(folder: Path) -> None:
    """Sync the folder's files, so that a power cut can't leave a complete name with empty files."""
    for path in [*folder.iterdir(), folder]:
        with suppress(OSError):  # some file systems can't sync folders
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
