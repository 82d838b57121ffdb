"""A run's notes and tags, edited in the head of its page."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from controlplane.accounts.roles import operator_required, person
from runs import queries
from runs import tags as run_tags
from runs.models import Run
from runs.run_page import header, notes


@require_safe
def about(request: HttpRequest, run_id: str) -> HttpResponse:
    """The region; `?edit` opens the notes as a form for users who may edit."""
    run = queries.run_for(request, run_id)
    editing = "edit" in request.GET and person(request).may_operate
    return _region(request, run, draft=run.notes if editing else None)


@require_POST
@operator_required
def tags(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Tags are added and removed one by one, so concurrent users lose nothing."""
    run = queries.run_for(request, run_id)
    add = run_tags.words(request.POST.get("add", ""))
    run_tags.tag([run.pk], person(request), add, request.POST.getlist("remove"))
    run.refresh_from_db(fields=["tags"])
    missing = sorted(set(add) - set(run.tags))
    problems = [f"{', '.join(missing)}: a run has at most {run_tags.MOST_TAGS} tags."] if missing else []
    problems.append(run_tags.too_long(request.POST.get("add", "")))
    return _answer(request, run, tag_problem=" ".join(filter(None, problems)))


@require_POST
@operator_required
def write_notes(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Answer 422 with both texts if another user has saved meanwhile; the next save then replaces theirs knowingly."""
    run = queries.run_for(request, run_id)
    text = request.POST.get("notes", "")
    try:
        notes.write(run, text, request.POST.get("based_on", ""), person(request))
    except notes.Overtaken:
        run.refresh_from_db(fields=["notes"])
        return _region(request, run, status=422, draft=notes.clean(text), overtaken=True)
    run.refresh_from_db(fields=["notes"])
    return _answer(request, run)


def _answer(request: HttpRequest, run: Run, **more: Any) -> HttpResponseBase:
    """Without htmx, redirect to the page."""
    return _region(request, run, **more) if request.headers.get("HX-Request") else redirect("run", run.pk)


def _region(request: HttpRequest, run: Run, status: int = 200, **more: Any) -> HttpResponse:
    context = {**header.about(run, person(request)), **more}
    return render(request, "run_page/_notes_and_tags.html", context, status=status)
