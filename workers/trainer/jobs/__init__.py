"""Jobs: work on a run's model other than training. Each kind is a module with a `run` function."""

import importlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workers.contract.run import jobs
from workers.contract.run.spec import AttemptSpec
from workers.contract.wire.documents import ContractError, from_dict
from workers.contract.wire.names import EventKind, FileName
from workers.trainer import data
from workers.trainer.configuration import imports
from workers.trainer.configuration.spec import SpecError, path_of
from workers.trainer.recording.metrics import LineFile

ADAPTER_CONFIG = "adapter_config.json"
MIN_FREE_BYTES = 256 << 20
PROGRESS_EVERY_S = 0.5
DISK_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_KINDS: dict[str, tuple[str, type | None]] = {
    jobs.MERGE: ("merging", jobs.MergeSettings),
    jobs.ARCHIVE: ("archiving", jobs.ArchiveSettings),
    jobs.PUSH: ("pushing", jobs.PushSettings),
    jobs.BENCHMARK: ("benchmarking", jobs.BenchmarkSettings),
    jobs.GGUF: ("converting", jobs.GgufSettings),
    jobs.SERVE: ("serving", jobs.ServeSettings),
    jobs.WARM: ("warming", None),
}


class JobStopped(Exception):
    """Raised by a job that was stopped, once it has undone its work."""


@dataclass
class ModelJob:
    """One attempt's job, and its reports: stage, progress, result."""

    spec: AttemptSpec
    folder: Path
    metrics: LineFile
    rows: data.Rows | None
    """Rows of the dataset; None for kinds that don't need them (workers.contract.run.jobs.KINDS)."""
    total: int = 1
    _reported: float = field(default=float("-inf"), repr=False)

    @property
    def base(self) -> str:
        """The base model's folder or hub id."""
        return path_of(self.spec.run.model)

    @property
    def checkpoint(self) -> Path:
        """The checkpoint's folder, with an adapter or all weights."""
        return self.folder.parent.parent / self.spec.run.start_from

    @property
    def is_adapter(self) -> bool:
        return (self.checkpoint / ADAPTER_CONFIG).is_file()

    @property
    def tokenizer(self) -> str:
        """The checkpoint's folder if it has a tokenizer, whose chat template training used; otherwise the base."""
        has_tokenizer = (self.checkpoint / "tokenizer_config.json").is_file()
        return str(self.checkpoint) if has_tokenizer else self.base

    def check_room(self, size: float, title: str) -> None:
        """Raise SpecError unless the job's disk has `size` bytes free for a file, which messages call `title`."""
        min_size, free_bytes = size + MIN_FREE_BYTES, shutil.disk_usage(self.folder).free
        if free_bytes < min_size:
            raise SpecError(
                f"{title} needs {min_size / 1e9:.1f} GB in {self.folder}, but only {free_bytes / 1e9:.1f} GB are free. "
                "Delete models that you no longer need, or free space on the host."
            )

    @contextmanager
    def unfinished(self, title: str) -> Iterator[Path]:
        """Yield a folder for unfinished files, deleted afterwards. Raises SpecError if they don't fit on the disk."""
        folder = self.folder / FileName.UNFINISHED
        try:
            yield folder
        except Exception as error:
            if isinstance(error, SpecError) or not DISK_FULL.search(str(error)):
                raise
            raise SpecError(self.no_room(title)) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def no_room(self, title: str) -> str:
        return f"No space left on device: {title} didn't fit in {self.folder}."

    def document(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the job's folder; return {} if it is missing."""
        try:
            return dict(json.loads((self.folder / name).read_bytes()))
        except FileNotFoundError:
            return {}

    def stage(self, name: str) -> None:
        self.metrics.event(EventKind.STAGE, {"stage": name})

    def begin(self, total: int) -> None:
        """Report that the job is running, with `progress` counting up to `total`."""
        self.total = max(1, total)
        self.metrics.event(EventKind.TRAINING, {"max_steps": self.total, "step": 0}, step=0)

    def progress(self, count: int) -> None:
        now = time.monotonic()
        if count >= self.total or now - self._reported >= PROGRESS_EVERY_S:
            self._reported = now
            self.metrics.log(min(count, self.total), {"job/done": float(count)})

    def result(self, text: str, **facts: Any) -> None:
        """Report a result. `text`: a sentence to display. `facts`: data for pages."""
        self.metrics.event(EventKind.RESULT, {"text": text, "facts": facts})

    @property
    def stop_requested(self) -> bool:
        return (self.folder / FileName.STOP).exists()

    def end(self, outcome: str = "done") -> None:
        self.metrics.event(EventKind.TRAINED, {"how": outcome}, step=self.total)


def run(job: ModelJob) -> None:
    """Run the job and report its end. Raises TrainerError with a message for the user."""
    name, settings_type = _KINDS[job.spec.run.kind]
    try:
        settings = settings_type and from_dict(settings_type, job.spec.run.job, at="job")
    except ContractError as error:
        raise SpecError(f"The job's settings can't be used: {error}.") from error
    try:
        imports.speed_up()(importlib.import_module)(f"workers.trainer.jobs.{name}").run(job, settings)
    except JobStopped:
        job.end("stopped")
    else:
        job.end()


def megabytes(size: int) -> int:
    """Convert bytes to megabytes, rounded up; transfers report their progress in megabytes."""
    return -(-size // 10**6)


def flush_to_disk(folder: Path) -> None:
    """Sync the folder's files to the disk, so that after a power cut a finished folder has no empty files."""
    for path in [*folder.iterdir(), folder]:
        with suppress(OSError):  # some file systems can't sync folders
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
