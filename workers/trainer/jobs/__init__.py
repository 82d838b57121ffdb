"""Jobs: what a trainer process does with a run's model instead of training it. Each kind is a module with `run`."""

from __future__ import annotations

import importlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.run.jobs import ARCHIVE, BENCHMARK, GGUF, MERGE, PUSH, SERVE, WARM
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import data
from workers.trainer.recording.metrics import LineFile

ADAPTER_CONFIG = "adapter_config.json"
EVERY_S = 0.5
"""Progress is written at most this often."""
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
    """A person has stopped the job, and it has taken back what it had begun."""


@dataclass
class Job:
    """One attempt's job: its spec, its folder, and how far it has come."""

    spec: AttemptSpec
    folder: Path
    metrics: LineFile
    rows: data.Rows | None
    """None for a kind that needs none (workers.contract.run.jobs.KINDS)."""
    total: int = 1
    _told: float = field(default=float("-inf"), repr=False)

    @property
    def base(self) -> str:
        """The model's folder or hub id."""
        path = self.spec.run.model.path
        return str(Path(path).expanduser()) if path.startswith("~") else path

    @property
    def checkpoint(self) -> Path:
        """The folder of the adapter, or of all weights."""
        return self.folder.parent.parent / self.spec.run.start_from

    @property
    def is_adapter(self) -> bool:
        return (self.checkpoint / ADAPTER_CONFIG).is_file()

    def stage(self, text: str) -> None:
        self.metrics.event(EventKind.STAGE, {"stage": text})

    def begin(self, total: int) -> None:
        """From here on the job is running; `total` is what `progress` counts to."""
        self.total = max(1, total)
        self.metrics.event(EventKind.TRAINING, {"max_steps": self.total, "step": 0}, step=0)

    def progress(self, done: int) -> None:
        now = time.monotonic()
        if done >= self.total or now - self._told >= EVERY_S:
            self._told = now
            self.metrics.log(min(done, self.total), {"job/done": float(done)})

    def result(self, text: str, **facts: Any) -> None:
        """`text` is for people; `facts` are what pages show of it."""
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
