"""The stored timings of runs' steps."""

import json
from typing import Any

from django.db import models

from runs.engine.models import Attempt, Run
from workers.contract.reports.lines import OutboxLine
from workers.contract.wire.names import EventKind

COLUMNS = ("run_id", "attempt_id", "seq", "step", "began", "seconds", "spans")


class StepSpans(models.Model):
    """The start and the duration of each phase of a step. Only a run's newest steps are kept (`folding.KEEP_STEPS`). As
    for metric rows, only the run is indexed."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, db_index=False)
    attempt = models.ForeignKey(Attempt, on_delete=models.CASCADE, db_index=False)
    seq = models.BigIntegerField()
    step = models.IntegerField()
    began = models.FloatField()
    """Unix seconds, by the host's clock."""
    seconds = models.FloatField()
    """Seconds from the step's beginning to the next step's beginning."""
    spans = models.JSONField()
    """List of [lane, phase, start, seconds], as in workers.contract.reports.waterfall."""

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="spans_seq")]


def row_of(attempt: Attempt, line: OutboxLine, void_after: int | None) -> list[tuple[Any, ...]]:
    """Convert a line of EventKind.SPANS to a list of one row; return [] for other lines and superseded steps."""
    if line.kind != EventKind.SPANS or line.step is None or (void_after is not None and line.step > void_after):
        return []
    began, seconds, spans = (line.data[name] for name in ("began", "seconds", "spans"))
    return [(attempt.run_id, attempt.pk, line.seq, line.step, began, seconds, json.dumps(spans))]
