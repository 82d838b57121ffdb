"""The replay: a run's stored completions scored by the config in the editor, before it costs GPU hours."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from controlplane.platform.accounts.roles import operator_required
from runs.engine.models import Run
from runs.engine.queries import run_for
from runs.engine.states import ACTIVE
from runs.insight.scoring.composition import posted
from runs.pages.playground import replay_source
from runs.pages.playground.replay_source import COUNTS, SPREAD, WHICH
from runs.pages.playground.replay_words import ReplayWords, kept_words
from runs.pages.playground.rescoring import rescored

GONE = "This run no longer exists. Choose another one."


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
        return render(
            request, "pages/playground/_replay_run.html", _chosen(run, GONE if run_id and run is None else "")
        )
    if run is None:
        return render(request, "pages/playground/_replay.html", {"problem": GONE if run_id else "Choose a run first."})
    return render(request, "pages/playground/_replay.html", _scored(request, run))


def _chosen(run: Run | None, problem: str) -> dict[str, Any]:
    if run is None:
        return {"problem": problem}
    kept = replay_source.kept(run)
    return {
        "run": run,
        "kept": kept,
        "kept_words": kept_words(kept, live=run.latest().status in ACTIVE),
        "which": WHICH,
        "spread": SPREAD,
        "counts": COUNTS,
        "usual_count": COUNTS[1],
    }


def _scored(request: HttpRequest, run: Run) -> dict[str, Any]:
    config, fields = posted(request), request.POST
    step, count, asks = fields.get("step", ""), fields.get("groups", ""), bool(fields.get("ask"))
    rescoring = rescored(
        run,
        config.specs,
        aggregation=config.aggregation,
        which=fields.get("which", ""),
        step=int(step) if step.isascii() and step.isdecimal() and len(step) < 10 else None,
        count=int(count) if count in map(str, COUNTS) else COUNTS[1],
        ask=asks,
    )
    context: dict[str, Any] = {"run": run, "problems": config.problems, "asks": asks, "picked": rescoring.picked}
    if rescoring.replay is None or rescoring.picked is None:
        return context | {"problem": rescoring.problem}
    parts = list(zip(rescoring.replay.parts, config.positions, strict=True))
    words = ReplayWords(rescoring.replay, rescoring.picked, live=run.latest().status in ACTIVE)
    return context | {"replay": rescoring.replay, "parts": parts, "words": words}
