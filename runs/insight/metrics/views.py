"""A run's metrics: their points for charts, and their names."""

import gzip
import math
from collections.abc import Sequence

import msgspec
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers
from django.views.decorators.http import require_safe

from controlplane.platform.http.keyset import split_list, whole_parameter
from runs.engine import queries
from runs.engine.models import Run
from runs.insight.metrics import run_charts
from runs.insight.metrics import series as numbers
from runs.insight.metrics import waterfall as steps

POINTS = 500
MAX_POINTS = 5000
ALL_METRICS = "*"
AXES = ("step", "tokens", "time")
MIN_COMPRESSED_BYTES = 1024


@require_safe
def series(request: HttpRequest, run_id: str) -> HttpResponse:
    """Return the points of `metrics=a,b` or `*`, by default of the charts' metrics. `x`, `from` and `to` select a
    window."""
    run = queries.run_for(request, run_id)
    requested = request.GET.get("metrics", "")
    if requested == ALL_METRICS:
        names = numbers.reported_metrics(run)
    else:
        names = split_list(requested) if requested else run_charts.metrics(run_charts.plan_of(run))
    return points_of(request, run, names)


def points_of(request: HttpRequest, run: Run, names: Sequence[str]) -> HttpResponse:
    """Return the points of these metrics, with the number of points and the window that the URL requests."""
    points, x = whole_parameter(request, "points", POINTS, 2, MAX_POINTS), request.GET.get("x", "")
    window = numbers.Window(x if x in AXES else "", _number(request, "from"), _number(request, "to"))
    return _compressed_json(request, numbers.series(run, names, points, window))


@require_safe
def metrics(request: HttpRequest, run_id: str) -> HttpResponse:
    return _compressed_json(request, {"metrics": numbers.metrics(queries.run_for(request, run_id))})


@require_safe
def waterfall(request: HttpRequest, run_id: str) -> HttpResponse:
    """Show the phases of `step`, or of a median recent step, on one time axis, as a part of the page."""
    run = queries.run_for(request, run_id)
    step = whole_parameter(request, "step", -1, -1, 2**31 - 1)
    view = steps.of_run(run, None if step < 0 else step)
    return render(request, "insight/metrics/_waterfall.html", {"view": view, "asked": step, "picks": True})


def _number(request: HttpRequest, name: str) -> float | None:
    try:
        value = float(request.GET[name])
    except (KeyError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _compressed_json(request: HttpRequest, payload: object) -> HttpResponse:
    """Return a response with compressed JSON. Django's encoder and gzip would take longer than reading the numbers."""
    body = msgspec.json.encode(payload)
    compresses = len(body) >= MIN_COMPRESSED_BYTES and "gzip" in request.headers.get("Accept-Encoding", "")
    response = HttpResponse(gzip.compress(body, 1) if compresses else body, content_type="application/json")
    patch_vary_headers(response, ["Accept-Encoding"])
    if compresses:
        response["Content-Encoding"] = "gzip"
    return response
