"""The replay: a run's stored completions scored by the config in the editor, before it costs GPU hours."""

from __future__ import annotations

import threading
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from controlplane.accounts.roles import operator_required
from controlplane.rewards import turns
from runs.models import Run
from runs.playground import replay_source
from runs.playground.composition import asked
from runs.playground.replay import compare, score
from runs.playground.replay_source import COUNTS, SPREAD, WHICH
from runs.queries import run_for
from runs.states import ACTIVE

SECONDS = 25.0
"""Seconds that one replay may score; groups left over are reported."""
AT_ONCE = 2
WAIT_S = 5.0
BUSY = "Other replays are running on this server. Try again in a moment."
GONE = "This run no longer exists. Choose another one."

_room = threading.BoundedSemaphore(AT_ONCE)


@operator_required
@require_http_methods(["GET", "POST"])
def replay(request: HttpRequest) -> HttpResponse:
    """GET shows the chosen run; POST scores its groups."""
    fields = request.POST if request.method == "POST" else request.GET
    run_id = fields.get("replay", "")
    try:
        run = run_for(request, run_id) if run_id else None
    except Http404:
        run = None
    if request.method == "GET":
        return render(request, "playground/_replay_run.html", _chosen(run, GONE if run_id and run is None else ""))
    if run is None:
        return render(request, "playground/_replay.html", {"problem": GONE if run_id else "Choose a run first."})
    if not _room.acquire(timeout=WAIT_S):
        return render(request, "playground/_replay.html", {"problem": BUSY})
    try:
        return render(request, "playground/_replay.html", _scored(request, run))
    finally:
        _room.release()


def _chosen(run: Run | None, problem: str) -> dict[str, Any]:
    return {
        "run": run,
        "problem": problem,
        "kept": replay_source.kept(run) if run else None,
        "live": run is not None and run.latest().status in ACTIVE,
        "which": WHICH,
        "spread": SPREAD,
        "counts": COUNTS,
    }


def _scored(request: HttpRequest, run: Run) -> dict[str, Any]:
    config, fields = asked(request), request.POST
    selected_by = fields.get("which", "")
    step, count = fields.get("step", ""), fields.get("groups", "")
    context: dict[str, Any] = {"run": run, "problems": config.problems, "asks": bool(fields.get("ask"))}
    if not config.specs:
        return context | {"problem": "Every component has an error, so there is nothing to score with."}
    selection = replay_source.pick(
        run,
        selected_by if selected_by in WHICH else SPREAD,
        int(step) if step.isascii() and step.isdecimal() and len(step) < 10 else None,
        int(count) if count in map(str, COUNTS) else COUNTS[1],
    )
    context["picked"] = selection
    if not selection.groups:
        return context | {"problem": "No texts of this run are stored there, so there is nothing to score again."}
    turn = turns.turn(SECONDS)
    rescored = score(selection.groups, config.specs, turn, ask=context["asks"], of_run=run.spec)
    if not rescored:
        return context | {"problem": "Scoring timed out before one group was scored by every component."}
    grpo = run.spec.get("grpo") or {}
    scale = grpo.get("scale_rewards", "group")
    result = compare(
        rescored,
        config.specs,
        aggregation=config.aggregation,
        scale=scale if scale in ("group", "batch", "none", True, False) else "group",
        requested=len(selection.groups),
    )
    if not result.groups:
        return context | {"problem": "None of these components can be scored here, so there are no totals to compare."}
    parts = list(zip(result.parts, config.places, strict=True))
    return context | {"replay": result, "parts": parts, "live": run.latest().status in ACTIVE}
