"""Runs beside each other: the page, and what it reads on its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.gzip import gzip_page
from django.views.decorators.http import require_safe

from controlplane.http.query_params import listed, whole
from runs import queries
from runs.compare import comparison
from runs.compare import prompts as compare_prompts
from runs.compare.comparison import Chosen, ComparedMetric
from runs.compare.curves import AXES, curves, finals

MOST_CURVES_OF = 50
"""Runs in one answer of numbers; the page asks for fewer."""
OFFERED_RUNS = 100


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    if request.GET.get("add", "").strip():
        return redirect(f"{reverse('compare_runs')}?{_with_added(request)}")
    asked = comparison.chosen(request)
    known = comparison.metrics(asked.runs)
    shown = comparison.shown_metrics(request, known)
    unlike, same = comparison.differences(asked.runs)
    others = queries.runs_for(request).filter(archived_at=None).exclude(pk__in=asked.runs).exclude(kind="trial")
    context = {
        **_table(asked),
        "asked": asked,
        "metrics": known,
        "shown": shown,
        "most_metrics": comparison.MOST_METRICS,
        "axes": AXES,
        "differences": unlike,
        "same": same,
        "others": others.values_list("pk", "name", "owner__username")[:OFFERED_RUNS],
        "prompts_query": _query(request, "row", "visit"),
        "page": _document(asked, known, shown),
    }
    return render(request, "compare/compare.html", context)


@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """How each run is now, for the page to swap in."""
    return render(request, "compare/_table.html", _table(comparison.chosen(request)))


@require_safe
@gzip_page
def series(request: HttpRequest) -> HttpResponse:
    """Curves by the axis that is asked for, and the final figures of the metric `of`."""
    asked = comparison.chosen(request, MOST_CURVES_OF)
    x, of = request.GET.get("x", "step"), request.GET.get("of", "")
    known = dict(pair.rpartition(":")[::2] for pair in request.GET.get("known", "").split(",") if ":" in pair)
    answer = curves(
        asked.runs,
        listed(request.GET.get("metrics", ""))[: comparison.MOST_METRICS],
        x=x if x in AXES else "step",
        points=whole(request, "points", 400, 2, 1000),
        known={run: int(seq) for run, seq in known.items() if seq.isdecimal()},
    )
    whole_answer = {**answer, "finals": finals(asked.runs, of) if of else {}}
    return HttpResponse(msgspec.json.encode(whole_answer), content_type="application/json")


@require_safe
def prompts(request: HttpRequest) -> HttpResponse:
    """One prompt and what each run answered."""
    asked = comparison.chosen(request)
    row = whole(request, "row", -1, -1, 2**31 - 1)
    looks = comparison.looks(asked.runs)
    found = compare_prompts.answers(asked.runs, row, request.GET.get("visit", ""))
    context = {
        "asked": asked,
        "found": found,
        "visits": compare_prompts.VISITS,
        "columns": [(answer, looks[answer.run.pk]) for answer in found.answers],
    }
    return render(request, "compare/_prompts.html", context)


def _table(asked: Chosen) -> dict[str, Any]:
    looks, now = comparison.looks(asked.runs), timezone.now()
    rows = [
        {
            "run": run,
            "look": looks[run.pk],
            "s": queries.summary(run, now, {}),
            "took": comparison.took(run, now),
            "tokens": run.last_metrics.get("num_tokens"),
            "without": ",".join(other.pk for other in asked.runs if other is not run),
        }
        for run in asked.runs
    ]
    return {"rows": rows}


def _document(asked: Chosen, known: list[ComparedMetric], shown: list[str]) -> dict[str, Any]:
    """For the browser, as one JSON document in the page."""
    looks = comparison.looks(asked.runs)
    return {
        "runs": [
            {"id": run.pk, "name": run.name, **asdict(looks[run.pk]), "live": comparison.is_live(run)}
            for run in asked.runs
        ],
        "metrics": [asdict(metric) for metric in known],
        "shown": shown,
        "most": comparison.MOST_METRICS,
        "axes": AXES,
        "series": reverse("compare_series"),
        "table": reverse("compare_table"),
        "socket": "/ws/runs/",
    }


def _with_added(request: HttpRequest) -> str:
    """The query with one more run, named by its id or, of several runs with that name, the newest."""
    query = request.GET.copy()
    (said,) = query.pop("add")[-1:]
    word = said.strip().replace("\0", "")
    runs = queries.runs_for(request)
    run = runs.filter(pk=word).first() or runs.filter(name=word).first()
    query["runs"] = ",".join(filter(None, [query.get("runs", ""), run.pk if run else word.replace(",", " ")]))
    return query.urlencode(safe="/,:")


def _query(request: HttpRequest, *names: str) -> str:
    kept = request.GET.copy()
    for name in set(kept) - {"runs", *names}:
        del kept[name]
    return kept.urlencode()
