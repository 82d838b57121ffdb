"""Operators' actions on queued runs: moving, setting the priority and removing."""

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import queries
from runs.engine.models import Attempt, Priority
from runs.engine.scheduling import reordering, stopping
from runs.engine.states import RunStatus


@require_POST
@operator_required
def queue_move(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Move a run in the queue. The field `put` is `first`, or `before` or `after` the run whose id is in `other`."""
    run, put = queries.run_for(request, run_id), request.POST.get("put", "")
    if put not in ("first", "before", "after"):
        return _unclear("Use put=first, put=before or put=after.")
    try:
        neighbour = {} if put == "first" else {put: queries.run_for(request, request.POST.get("other", ""))}
        reordering.put(run, person(request), **neighbour)
    except reordering.NotWaiting as error:
        return _notice(request, str(error))
    except Http404:
        return _notice(request, "The other run no longer exists. Nothing was moved.")
    return _queue()


@require_POST
@operator_required
def queue_priority(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run, value = queries.run_for(request, run_id), request.POST.get("priority", "")
    selected = next((priority for priority in Priority if str(priority.value) == value), None)
    if selected is None:
        return _unclear("Use priority=1 (high), 0 (normal) or -1 (low).")
    try:
        reordering.set_priority(run, selected, person(request))
    except reordering.NotWaiting as error:
        return _notice(request, str(error))
    return _queue()


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def queue_remove(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show the page that confirms the removal of a run from the queue; on POST, remove it. A run that has already
    started continues."""
    run = queries.run_for(request, run_id)
    attempt = run.latest()
    if request.method == "POST":
        if stopping.cancel(attempt, person(request)):
            messages.success(request, f"{run.name} was removed from the queue.")
            return redirect("hardware")
        return _notice(request, f"{run.name} had already left the queue. Nothing was stopped.")
    context = {
        "run": run,
        "attempt": attempt,
        "waits": attempt.status == RunStatus.QUEUED,
        "place": queries.summary(run)["place"],
        "loss": _loss(attempt),
        "later": "resumed" if attempt.resume_step else "cloned",
    }
    return render(request, "pages/hosts/unqueue.html", context)


def _loss(attempt: Attempt) -> str:
    """Describe what a queued attempt loses by leaving the queue."""
    if attempt.number == 1:
        return "It has not started, so nothing is lost."
    checkpoint = f" from its checkpoint at step {attempt.resume_step}" if attempt.resume_step else ""
    return f"It would have resumed{checkpoint}. What it has trained and saved is kept."


def _queue() -> HttpResponseBase:
    return redirect(f"{reverse('hardware')}#queue")


def _notice(request: HttpRequest, text: str) -> HttpResponseBase:
    messages.info(request, text)
    return redirect("hardware")


def _unclear(text: str) -> HttpResponse:
    return HttpResponse(text, status=400, content_type="text/plain")
