"""Standard benchmarks of a model: starting the job, and its results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from controlplane.platform.accounts.models import User
from runs.engine.checkpoints import Checkpoint
from runs.engine.jobs import starting
from runs.engine.jobs.results import JobView
from runs.engine.models import Run
from runs.engine.records import number
from workers.contract.run.benchmarks import MOST_EXAMPLES, TASKS
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.jobs import BENCHMARK, BenchmarkSettings
from workers.contract.wire.documents import ContractError, to_dict

ON_A_GPU = HardwareSpec("", trainer_gpus=1)


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


def start(checkpoint: Checkpoint, user: User, *, tasks: list[str], limit: int) -> Run:
    """Start a benchmark of a model, or return the one that is under way; on a GPU if the run had one.

    Raises ContractError with words for people, and QueueFull.
    """
    if not tasks:
        raise ContractError("choose at least one task")
    if unknown := [task for task in tasks if task not in TASKS]:
        raise ContractError(f"{unknown[0]!r} is not offered")
    if not 0 <= limit <= MOST_EXAMPLES:
        raise ContractError(f"a task has 1 to {MOST_EXAMPLES:,} examples, or 0 for all of them")
    gpus = (checkpoint.run.spec.get("hardware") or {}).get("trainer_gpus")
    settings = BenchmarkSettings(tuple(tasks), limit)
    hardware = ON_A_GPU if gpus else starting.ON_THE_CPU
    job = starting.start_once(checkpoint, BENCHMARK, user, settings=settings, hardware=hardware)
    if job.spec["job"] != to_dict(settings):
        raise ContractError("another benchmark of this model is under way: wait for its end")
    return job


def results(jobs: Iterable[JobView]) -> list[BenchmarkResult]:
    """The newest result of each task and metric. `jobs`: newest first."""
    newest: dict[tuple[str, str], BenchmarkResult] = {}
    for job in jobs:
        if job.run.kind != BENCHMARK:
            continue
        for row in job.facts.get("results") or ():
            task, metric, value = str(row.get("task")), str(row.get("metric")), number(row.get("value"))
            if value is None:
                continue
            title = TASKS[task].title if task in TASKS else task
            result = BenchmarkResult(title, metric, value, number(row.get("stderr")), row.get("n"), job.run)
            newest.setdefault((task, metric), result)
    return list(newest.values())
