"""A run's notes and tags, which are edited in the head of its page."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import queries
from runs.engine import tags as run_tags
from runs.engine.models import Run
from runs.pages.run_page import header, notes


@require_POST
@operator_required
def tags(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Add and remove single tags, so that concurrent changes don't overwrite each other."""
    run = queries.run_for(request, run_id)
    add = run_tags.parse(request.POST.get("add", ""))
    run_tags.tag([run.pk], person(request), add, request.POST.getlist("remove"))
    run.refresh_from_db(fields=["tags"])
    missing_tags = sorted(set(add) - set(run.tags))
    problems = [f"{', '.join(missing_tags)}: a run has at most {run_tags.MAX_TAGS} tags."] if missing_tags else []
    problems.append(run_tags.too_long(request.POST.get("add", "")))
    if not request.headers.get("HX-Request"):
        return redirect("run", run.pk)
    context = {**header.about(run, person(request)), "tag_problem": " ".join(filter(None, problems))}
    return render(request, "pages/run_page/_about.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def run_notes(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show a run's notes, or with `?edit` a form for users who may edit them; POST saves them."""
    if request.method == "POST":
        return write_notes(request, run_id)
    run = queries.run_for(request, run_id)
    is_editing = "edit" in request.GET and person(request).may_operate
    return _notes(request, run, draft=run.notes if is_editing else None)


@operator_required
def write_notes(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Save a run's notes. If another user has changed them since the form was loaded, respond with 422 and both
    versions; saving again then replaces the other user's version."""
    run = queries.run_for(request, run_id)
    text = request.POST.get("notes", "")
    try:
        notes.write(run, text, request.POST.get("based_on", ""), person(request))
    except notes.NotesConflict:
        run.refresh_from_db(fields=["notes"])
        return _notes(request, run, status=422, draft=notes.clean(text), overtaken=True)
    run.refresh_from_db(fields=["notes"])
    return _notes(request, run, opened=True) if request.headers.get("HX-Request") else redirect("run", run.pk)


def _notes(request: HttpRequest, run: Run, status: int = 200, **changes: Any) -> HttpResponse:
    context = {**header.about(run, person(request)), **changes}
    return render(request, "pages/run_page/_notes.html", context, status=status)
