"""The run list, its CSV file, actions on several runs, and saved views."""

import csv
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.streams import csv_cell
from runs.engine import queries, tags
from runs.engine.models import Run, SavedView
from runs.engine.scheduling import stopping
from runs.engine.sentences import counted
from runs.engine.tags import TagResult
from runs.insight.comparing import comparison
from runs.launch import demo
from runs.pages.run_list import columns
from runs.pages.run_list.query import RunListQuery
from runs.pages.run_list.rows import choices, empty_list, listing
from workers.contract.wire.names import StopMode

CSV_BATCH = 200
CSV_HEADINGS = (
    *("id", "name", "status", "reason", "kind", "model", "dataset", "step", "max_steps", "reward", "gain", "health"),
    *("host", "gpus", "owner", "tags", "created_at", "started_at", "ended_at"),
)
"""Headings of the columns that always come before the chosen settings and metrics."""


@require_safe
def home(request: HttpRequest) -> HttpResponse:
    """Redirect to the runs or, in an installation without runs, to the first steps or the demo being prepared."""
    if Run.objects.exists():
        return redirect("runs")
    return redirect("demo_run" if demo.current_stage() else "start")


@require_safe
def runs(request: HttpRequest) -> HttpResponse:
    """Show the list; an htmx request gets only the rows."""
    run_listing = listing(request)
    may_operate, preparing = person(request).may_operate, demo.current_stage()
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
    """Send the whole list as a CSV file, in its order and with the chosen columns. The reward is the newest value; the
    gain is defined in runs.engine.gain."""
    query, all_runs = RunListQuery.of(request.GET.dict()), queries.runs_for(request)
    extra_columns = columns.split_columns(query.columns)[1]
    response = HttpResponse(content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = 'attachment; filename="runs.csv"'
    writer = csv.writer(response)
    writer.writerow([*CSV_HEADINGS, *(column.name for column in extra_columns)])
    ids = list(query.ordered(query.matching(all_runs)).values_list("pk", flat=True))
    for start in range(0, len(ids), CSV_BATCH):
        batch = ids[start : start + CSV_BATCH]
        by_id = columns.with_figures(all_runs, extra_columns).in_bulk(batch)
        for run in (by_id[pk] for pk in batch if pk in by_id):
            writer.writerow(map(csv_cell, (*_csv_row(run), *map(columns.Values(run).value, extra_columns))))
    return response


def _csv_row(run: Run) -> list[Any]:
    attempt, summary = run.latest(), queries.summary(run, positions={})
    model, dataset = (comparison.part(run.spec, part).get(key) for part, key in (("model", "path"), ("data", "name")))
    return [
        *(run.pk, run.name, attempt.status, attempt.reason, run.kind, model, dataset, run.step, run.max_steps),
        *(summary["reward"], summary["gain"], run.health.get("verdict", ""), summary["host"]),
        *(" ".join(map(str, attempt.gpus)), run.owner.get_username(), ", ".join(run.tags)),
        *(summary["created_at"], summary["started_at"], summary["ended_at"]),
    ]


@require_POST
@operator_required
def stop_several(request: HttpRequest) -> HttpResponseBase:
    mode = request.POST.get("mode")
    if mode not in set(StopMode):
        return HttpResponse("Use mode=save or mode=now.", status=400, content_type="text/plain")
    chosen_runs = queries.runs_for(request).filter(pk__in=_runs_in_form(request))
    counts = stopping.request_stops([run.latest() for run in chosen_runs], StopMode(mode), person(request))
    if counts.requested or counts.cancelled:
        messages.success(request, str(counts))
    else:
        messages.info(request, f"Nothing was stopped. {counts}")
    return _redirect_back(request)


@require_POST
@operator_required
def archive_several(request: HttpRequest) -> HttpResponseBase:
    chosen_runs = queries.runs_for(request).filter(pk__in=_runs_in_form(request))
    if served_names := [run.name for run in chosen_runs if tags.is_serving(run)]:
        names = ", ".join(served_names)
        reason = "its model is" if len(served_names) == 1 else "their models are"
        stop = "it" if len(served_names) == 1 else "them"
        messages.warning(request, f"{names} can't be archived: {reason} being served. Stop serving {stop} first.")
    outcome = tags.archive(_runs_in_form(request), person(request))
    return _report(request, outcome, "Archived {}.", "Skipped {}: still active, being served, or already archived.")


@require_POST
@operator_required
def unarchive_several(request: HttpRequest) -> HttpResponseBase:
    outcome = tags.unarchive(_runs_in_form(request), person(request))
    return _report(request, outcome, "Unarchived {}.", "{} were not archived.")


@require_POST
@operator_required
def tag_several(request: HttpRequest) -> HttpResponseBase:
    add, remove = tags.parse(request.POST.get("add", "")), request.POST.getlist("remove")
    if problem := tags.too_long(request.POST.get("add", "")):
        messages.warning(request, problem)
    outcome = tags.tag(_runs_in_form(request), person(request), add, remove)
    return _report(request, outcome, "Changed the tags of {}.", "{} already had these tags, or have too many.")


@require_POST
def save_view(request: HttpRequest) -> HttpResponseBase:
    """Save a view, replacing the user's view with the same name."""
    name = " ".join(request.POST.get("name", "").replace("\0", "").split())[:60]
    query = _list_query(request).address()
    if not name:
        return HttpResponse("Enter a name.", status=400, content_type="text/plain")
    SavedView.objects.update_or_create(owner=person(request), name=name, defaults={"query": query})
    messages.success(request, f"Saved this view as “{name}”.")
    return _redirect_back(request)


@require_POST
def delete_view(request: HttpRequest, view_id: int) -> HttpResponseBase:
    deleted, _ = SavedView.objects.filter(pk=view_id, owner=person(request)).delete()
    if not deleted:
        raise Http404("You have no such view.")
    return _redirect_back(request)


def _runs_in_form(request: HttpRequest) -> list[str]:
    return queries.valid_ids(request.POST.getlist("run"))


def _list_query(request: HttpRequest) -> RunListQuery:
    return RunListQuery.of(QueryDict(request.POST.get("back", "").removeprefix("?")).dict())


def _redirect_back(request: HttpRequest) -> HttpResponseBase:
    query = _list_query(request)
    return redirect(f"{reverse('runs')}?{query.address(page=query.page)}".rstrip("?"))


def _report(request: HttpRequest, outcome: TagResult, changed: str, unchanged: str) -> HttpResponseBase:
    parts = [changed.format(counted(outcome.changed, "run"))] if outcome.changed else ["Nothing was changed."]
    parts += [unchanged.format(counted(outcome.unchanged, "run"))] if outcome.unchanged else []
    (messages.success if outcome.changed else messages.info)(request, " ".join(parts))
    return _redirect_back(request)
