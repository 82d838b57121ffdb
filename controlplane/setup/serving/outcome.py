"""The outcome of the demo run, as the JSON object that `demo --once --json` prints."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from controlplane.setup.bootstrap import INSTALL_SECONDS, STARTED
from runs.engine.models import Attempt, Run
from runs.engine.records import MetricChunk, MetricRow, RunEvent
from runs.engine.step_spans import StepSpans
from runs.insight.metrics.series import Points
from runs.insight.metrics.series import series as series_of
from workers.contract.wire.names import FileName

EVERY_POINT = 1_000_000
EDGE_STEPS = 10
"""Number of steps at the start and at the end whose mean rewards are compared; not all have a reward if a batch is used
several times."""


def outcome(run: Run, page_at: float, runs_dir: Path) -> dict[str, Any]:
    """Return the outcome of a run that has ended. `page_at` is the Unix timestamp at which the page first responded."""
    attempt = run.attempts.get(number=run.attempts.count())
    reward = series_of(run, ["reward"], EVERY_POINT)["series"].get("reward")
    points = list(zip(reward["step"], reward["value"], strict=True)) if reward else []
    return {
        "run": run.pk,
        "status": attempt.status,
        "reason": attempt.reason,
        "detail": attempt.detail,
        "steps": run.step,
        "seconds_install": round(float(os.environ.get(INSTALL_SECONDS, "0")), 1),
        "seconds_to_page": round(page_at - float(os.environ.get(STARTED, repr(page_at))), 1),
        "seconds_to_first_step": round(reward["t"][0] - page_at, 1) if points and reward else None,
        "reward_first10": _mean(value for step, value in points if step and step <= EDGE_STEPS),
        "reward_last10": _mean(value for step, value in points if step and step > run.step - EDGE_STEPS),
        "rows_written": rows_written(attempt, runs_dir),
        "rows_stored": rows_stored(attempt),
        "receipt": attempt.receipt,
    }


def rows_written(attempt: Attempt, runs_dir: Path) -> int:
    """Return the number of lines in the outbox, which this command can read because it runs on the host."""
    outbox = runs_dir / attempt.run_id / str(attempt.number) / FileName.OUTBOX
    return outbox.read_bytes().count(b"\n") if outbox.exists() else 0


def rows_stored(attempt: Attempt) -> int:
    """Return the number of the attempt's lines in the database: raw lines, folded ones, events and phases of steps."""
    first = attempt.first_seq or 1
    # With the run, because rows of metrics have no index by attempt.
    of_attempt = {"run": attempt.run_id, "attempt": attempt}
    seqs: set[int] = set(MetricRow.objects.filter(**of_attempt).values_list("seq", flat=True))
    seqs.update(RunEvent.objects.filter(attempt=attempt, seq__isnull=False).values_list("seq", flat=True))  # type: ignore[arg-type]
    seqs.update(StepSpans.objects.filter(**of_attempt).values_list("seq", flat=True))
    for chunk in MetricChunk.objects.filter(run_id=attempt.run_id, last_seq__gte=first):
        seqs.update(int(seq) for seq in Points.unpack(chunk.data, chunk.points).seq if seq >= first)
    return len(seqs)


def _mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return round(sum(values) / len(values), 4) if values else None
