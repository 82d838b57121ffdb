"""The run list as CSV: every matching run, not only those of a page."""

from __future__ import annotations

import csv
import io
from typing import Any

from django.db.models import QuerySet

from controlplane.platform.http.streams import csv_cell
from runs.engine import queries
from runs.engine.models import Run
from runs.insight.comparing import comparison
from runs.pages.run_list import columns
from runs.pages.run_list.query import RunListQuery

AT_ONCE = 200
HEADINGS = (
    *("id", "name", "status", "reason", "kind", "model", "dataset", "step", "max_steps", "reward", "gain", "health"),
    *("host", "gpus", "owner", "tags", "created_at", "started_at", "ended_at"),
)
"""Always there, before the chosen settings and metrics."""


def text(query: RunListQuery, everything: QuerySet[Run]) -> str:
    """Write the list as CSV, in its order. The reward is the newest one, the gain that of runs.engine.gain."""
    extra = columns.chosen(query.columns)[1]
    target = io.StringIO()
    writer = csv.writer(target)
    writer.writerow([*HEADINGS, *(column.name for column in extra)])
    ids = list(query.ordered(query.matching(everything)).values_list("pk", flat=True))
    for start in range(0, len(ids), AT_ONCE):
        some = ids[start : start + AT_ONCE]
        runs = columns.with_figures(everything, extra).in_bulk(some)
        for run in (runs[pk] for pk in some if pk in runs):
            writer.writerow(map(csv_cell, (*_usual(run), *map(columns.Values(run).value, extra))))
    return target.getvalue()


def _usual(run: Run) -> list[Any]:
    attempt, summary = run.latest(), queries.summary(run, positions={})
    model, dataset = (comparison.part(run.spec, part).get(key) for part, key in (("model", "path"), ("data", "name")))
    return [
        *(run.pk, run.name, attempt.status, attempt.reason, run.kind, model, dataset, run.step, run.max_steps),
        *(summary["reward"], summary["gain"], run.health.get("verdict", ""), summary["host"]),
        *(" ".join(map(str, attempt.gpus)), run.owner.get_username(), ", ".join(run.tags)),
        *(summary["created_at"], summary["started_at"], summary["ended_at"]),
    ]
