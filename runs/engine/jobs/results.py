"""The jobs on a checkpoint, with their progress and their results."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runs.engine import sentences
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import archives
from runs.engine.jobs.archives import Archive
from runs.engine.models import Run
from runs.engine.queries import with_attempts
from runs.engine.records import RunEvent, number
from runs.engine.states import ACTIVE, RunStatus
from workers.contract.run.jobs import ARCHIVE, BENCHMARK, BENCHMARK_TASKS, GGUF, KINDS, MERGE, PUSH
from workers.contract.wire.names import EventKind


@dataclass(frozen=True)
class ConvertedFile:
    path: str
    size: int
    sha256: str


@dataclass(frozen=True)
class JobView:
    run: Run
    status: str
    text: str
    """The result or, if there is none, a sentence on the job's state or end."""
    facts: dict[str, Any]

    @property
    def label(self) -> str:
        return KINDS[self.run.kind].label

    @property
    def live(self) -> bool:
        return self.status in ACTIVE

    @property
    def succeeded(self) -> bool:
        return self.status == RunStatus.SUCCEEDED

    @property
    def merged_model(self) -> int | None:
        """The event id of the model that a finished merge saved."""
        if self.run.kind != MERGE or not self.succeeded:
            return None
        saved_events = self.run.events.filter(kind=EventKind.CHECKPOINT).order_by("-id")
        return saved_events.values_list("pk", flat=True).first()

    @property
    def archive(self) -> Archive | None:
        """The archive of a finished download, as long as it is offered."""
        return archives.find(self.run) if self.run.kind == ARCHIVE and self.succeeded else None

    @property
    def is_download(self) -> bool:
        return self.run.kind == ARCHIVE

    @property
    def pushed_to(self) -> str:
        """The address on the hub that a finished push reports, or ""."""
        return str(self.facts.get("url", "")) if self.run.kind == PUSH and self.succeeded else ""

    @property
    def file(self) -> ConvertedFile | None:
        facts = self.facts if self.run.kind == GGUF and self.succeeded else {}
        folder, name, size, checksum = (facts.get(key) for key in ("folder", "name", "size", "sha256"))
        if not (isinstance(folder, str) and isinstance(name, str) and isinstance(size, int)):
            return None
        return ConvertedFile(f"{folder}/{name}", size, str(checksum))

    @property
    def megabytes(self) -> str:
        """The progress of a push, or "" for other jobs."""
        is_uploading = self.live and self.run.kind == PUSH and self.run.max_steps
        return f"{self.run.step:,} of {self.run.max_steps:,} MB" if is_uploading else ""

    @property
    def percent(self) -> int | None:
        has_progress = self.live and (self.run.max_steps or 0) > 1
        return round(100 * self.run.step / self.run.max_steps) if has_progress and self.run.max_steps else None


def of_checkpoint(checkpoint: Checkpoint) -> list[JobView]:
    """List the jobs on a checkpoint, newest first."""
    jobs = checkpoint.run.jobs.filter(kind__in=KINDS, spec__start_from=checkpoint.folder)
    return [view(run) for run in with_attempts(jobs.select_related("owner").order_by("-created_at"))]


def view(run: Run) -> JobView:
    attempt = run.latest()
    last_result = RunEvent.objects.filter(run=run, kind=EventKind.RESULT).order_by("-id").first()
    data = last_result.data if last_result else {}
    text = attempt.detail if attempt.status == RunStatus.FAILED else data.get("text", "")
    return JobView(run, attempt.status, text or sentences.of_attempt(attempt), data.get("facts") or {})


@dataclass(frozen=True)
class BenchmarkResult:
    title: str
    metric: str
    value: float
    stderr: float | None
    examples: int | None
    job: Run

    @property
    def at(self) -> datetime:
        return self.job.created_at


def of_benchmarks(jobs: Iterable[JobView]) -> list[BenchmarkResult]:
    """List the newest result of each task and metric. `jobs` must be ordered newest first."""
    newest_results: dict[tuple[str, str], BenchmarkResult] = {}
    for job in jobs:
        for row in (job.facts.get("results") or ()) if job.run.kind == BENCHMARK else ():
            task, metric, value = str(row.get("task")), str(row.get("metric")), number(row.get("value"))
            if value is not None:
                title = BENCHMARK_TASKS[task].title if task in BENCHMARK_TASKS else task
                result = BenchmarkResult(title, metric, value, number(row.get("stderr")), row.get("n"), job.run)
                newest_results.setdefault((task, metric), result)
    return list(newest_results.values())
