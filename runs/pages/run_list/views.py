"""The run list, actions on several runs, and saved views."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import queries, tags
from runs.engine.models import Run, SavedView
from runs.engine.scheduling import stopping
from runs.engine.sentences import counted
from runs.engine.tags import TagResult
from runs.insight.comparing import comparison
from runs.launch import demo
from runs.pages.run_list import csv_file
from runs.pages.run_list.query import RunListQuery
from runs.pages.run_list.rows import choices, empty_list, listing
from workers.contract.wire.names import StopMode


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the runs; in an installation without any, to the first steps or the demo that is being prepared."""
    if Run.objects.exists():
        return redirect("runs")
    return redirect("demo_run" if demo.preparing() else "start")


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """Show the list; an htmx request gets only the rows."""
    run_listing = listing(request)
    may_operate, preparing = person(request).may_operate, demo.preparing()
    context: dict[str, Any] = {"list": run_listing, "may_operate": may_operate}
    if not run_listing.rows and not run_listing.grouping:
        context["preparing"] = None if run_listing.hides_runs else preparing
        context["empty"] = empty_list(run_listing, may_operate=may_operate)
    if request.headers.get("HX-Request") == "true":
        return render(request, "pages/run_list/_rows.html", context)
    context |= {"choices": choices(request, run_listing), "most_compared": comparison.MAX_RUNS}
    return render(request, "pages/run_list/list.html", context)


@require_safe
def runs_csv(request: HttpRequest) -> HttpResponse:
    """Send the whole list as a file, with the chosen columns."""
    query = RunListQuery.of(request.GET.dict())
    answer = HttpResponse(csv_file.text(query, queries.runs_for(request)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="runs.csv"'
    return answer


@require_POST
@operator_required
def stop_several(request: HttpRequest) -> HttpResponseBase:
    mode = request.POST.get("mode")
    if mode not in set(StopMode):
        return HttpResponse("Use mode=save or mode=now.", status=400, content_type="text/plain")
    chosen = queries.runs_for(request).filter(pk__in=_chosen(request))
    counts = stopping.request_stops([run.latest() for run in chosen], StopMode(mode), person(request))
    if counts.requested or counts.cancelled:
        messages.success(request, str(counts))
    else:
        messages.info(request, f"Nothing was stopped. {counts}")
    return _back(request)


@require_POST
@operator_required
def archive_several(request: HttpRequest) -> HttpResponseBase:
    chosen = queries.runs_for(request).filter(pk__in=_chosen(request))
    if served := [run.name for run in chosen if tags.serving(run)]:
        names = ", ".join(served)
        messages.warning(request, f"{names} can't be archived: its model is served. Stop serving it first.")
    outcome = tags.archive(_chosen(request), person(request))
    return _report(request, outcome, "Archived {}.", "Skipped {}: still running, served, or already archived.")


@require_POST
@operator_required
def unarchive_several(request: HttpRequest) -> HttpResponseBase:
    outcome = tags.unarchive(_chosen(request), person(request))
    return _report(request, outcome, "Unarchived {}.", "{} were not archived.")


@require_POST
@operator_required
def tag_several(request: HttpRequest) -> HttpResponseBase:
    add, remove = tags.parse(request.POST.get("add", "")), request.POST.getlist("remove")
    if problem := tags.too_long(request.POST.get("add", "")):
        messages.warning(request, problem)
    outcome = tags.tag(_chosen(request), person(request), add, remove)
    return _report(request, outcome, "Changed the tags of {}.", "{} already had these tags, or have too many.")


@require_POST
def save_view(request: HttpRequest) -> HttpResponseBase:
    """Save a view; an existing view of the same name is replaced."""
    name = " ".join(request.POST.get("name", "").replace("\0", "").split())[:60]
    query = _list_query(request).address()
    if not name:
        return HttpResponse("Enter a name.", status=400, content_type="text/plain")
    SavedView.objects.update_or_create(owner=person(request), name=name, defaults={"query": query})
    messages.success(request, f"Saved this view as “{name}”.")
    return _back(request)


@require_POST
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseBase:
    """Delete one of the user's own views."""
    deleted, _ = SavedView.objects.filter(pk=view_id, owner=person(request)).delete()
    if not deleted:
        raise Http404("You have no such view.")
    return _back(request)


def _chosen(request: HttpRequest) -> list[str]:
    return queries.readable(request.POST.getlist("run"))


def _list_query(request: HttpRequest) -> RunListQuery:
    """Read the list from which the form was submitted."""
    return RunListQuery.of(QueryDict(request.POST.get("back", "").removeprefix("?")).dict())


def _back(request: HttpRequest) -> HttpResponseBase:
    query = _list_query(request)
    return redirect(f"{reverse('runs')}?{query.address(page=query.page)}".rstrip("?"))


def _report(request: HttpRequest, outcome: TagResult, changed: str, unchanged: str) -> HttpResponseBase:
    parts = [changed.format(counted(outcome.changed, "run"))] if outcome.changed else ["Nothing was changed."]
    parts += [unchanged.format(counted(outcome.unchanged, "run"))] if outcome.unchanged else []
    (messages.success if outcome.changed else messages.info)(request, " ".join(parts))
    return _back(request)
