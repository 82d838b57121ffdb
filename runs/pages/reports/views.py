"""Downloads of reports: of one run, or of a comparison of runs."""

import math

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from runs.engine import queries
from runs.insight.comparing import comparison
from runs.insight.comparing.curves import AXES
from runs.pages.reports import comparison_document, run_document
from runs.pages.reports.charts import SMOOTHING

MAX_SMOOTHING = 0.99


@require_safe
def run_report(request: HttpRequest, run_id: str) -> HttpResponse:
    """Send a run's report. ?smooth= is the smoothing from 0 to 1, as on the page."""
    run = queries.run_for(request, run_id)
    return _download(run_document.report(run, timezone.now(), _smoothing(request)), f"{run.pk}-report.zip")


@require_safe
def comparison_report(request: HttpRequest) -> HttpResponse:
    """Send the report of the runs in the address. Without runs, redirect to the comparison page, which explains what is
    missing."""
    chosen_runs = comparison.chosen_runs(request)
    if not chosen_runs.runs:
        return redirect(f"{reverse('compare_runs')}?{request.GET.urlencode()}")
    by_name = {metric.name: metric for metric in comparison.metrics(chosen_runs.runs)}
    metrics = [by_name[name] for name in comparison.shown_metrics(request, list(by_name.values()))]
    x = request.GET.get("x", "step")
    axis = x if x in AXES else "step"
    content = comparison_document.report(chosen_runs.runs, metrics, axis, timezone.now(), _smoothing(request))
    return _download(content, "comparison-report.zip")


def _smoothing(request: HttpRequest) -> float:
    try:
        weight = float(request.GET.get("smooth", ""))
    except ValueError:
        return SMOOTHING
    return min(weight, MAX_SMOOTHING) if math.isfinite(weight) and weight >= 0 else SMOOTHING


def _download(content: bytes, name: str) -> HttpResponse:
    disposition = f'attachment; filename="{name}"'
    return HttpResponse(content, content_type="application/zip", headers={"Content-Disposition": disposition})
