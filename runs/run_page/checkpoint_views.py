"""The checkpoints tab: each checkpoint with its figures, and the resume from any that still exists."""

from __future__ import annotations

import sys
from bisect import bisect_right
from dataclasses import dataclass

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from runs import checkpoints, queries
from runs.checkpoints import Checkpoint
from runs.metrics.series import Series, series
from runs.metrics.trend import mean
from runs.models import Run
from runs.run_page.header import trains_on
from runs.scheduling import launching
from runs.scheduling.limits import QueueFull
from runs.spec import unreadable
from runs.states import ACTIVE, FINAL

FIGURES = {"reward": "Reward", "eval_reward": "Validation reward", "kl": "KL"}
OVER = 10
"""Steps up to the checkpoint whose mean is its figure: that of a single step is mostly chance."""


@dataclass(frozen=True)
class CheckpointRow:
    checkpoint: Checkpoint
    figures: list[tuple[str, float | None]]
    """Each with its label."""
    best: bool
    resumable: bool


@require_safe
def tab(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    saved = checkpoints.of_run(run)
    columns, rows = _table(run, saved)
    status = run.latest().status
    context = {
        "run": run,
        "columns": columns,
        "over": OVER,
        "rows": rows,
        "most": checkpoints.MOST,
        "live": status in ACTIVE,
        "may_resume": status in FINAL and person(request).may_operate and not unreadable(run),
    }
    return render(request, "run_page/_checkpoints.html", context)


@require_POST
@operator_required
def resume(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """From the checkpoint that the form names, or else from the last one."""
    run = queries.run_for(request, run_id)
    event_id = request.POST.get("checkpoint")
    checkpoint = checkpoints.find(run, event_id) if event_id else None
    try:
        if event_id and (checkpoint is None or not checkpoint.usable):
            raise launching.NotResumable("This checkpoint no longer exists. Resume from another one.")
        launching.resume(run, person(request), checkpoint)
    except (launching.NotResumable, QueueFull) as error:
        messages.error(request, str(error))
    return redirect("run", run.pk)


def _table(run: Run, saved: list[Checkpoint]) -> tuple[list[str], list[CheckpointRow]]:
    """The labels of the figures that the run has, and the rows."""
    names = [name for name in FIGURES if name in run.last_metrics] if saved else []
    histories = series(run, names, sys.maxsize)["series"] if names else {}
    figures = [
        [None if each.superseded else figure_at(histories[name], name, each.step) for name in names] for each in saved
    ]
    best = _best(saved, figures, names)
    labels = [FIGURES[name] for name in names]
    rows = [
        CheckpointRow(
            each, list(zip(labels, values, strict=True)), number == best, each.usable and trains_on(run, each.step)
        )
        for number, (each, values) in enumerate(zip(saved, figures, strict=True))
    ]
    return labels, rows


def figure_at(history: Series, name: str, step: int) -> float | None:
    """The newest evaluation's figure, or the mean of the last training steps."""
    end = bisect_right([at or 0 for at in history["step"]], step)
    values = history["value"][max(0, end - (1 if name.startswith("eval_") else OVER)) : end]
    return mean(values) if values else None


def _best(saved: list[Checkpoint], figures: list[list[float | None]], names: list[str]) -> int | None:
    """The index of the one with the highest validation reward, or reward, among those that exist."""
    name = next((name for name in ("eval_reward", "reward") if name in names), None)
    if name is None:
        return None
    scored = [
        (value, -number)
        for number, (each, values) in enumerate(zip(saved, figures, strict=True))
        if each.usable and (value := values[names.index(name)]) is not None
    ]
    return -max(scored)[1] if len(scored) > 1 else None
