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
        return _bad_request("Use put=first, put=before or put=after.")
    try:
        neighbour = {} if put == "first" else {put: queries.run_for(request, request.POST.get("other", ""))}
        reordering.move_run(run, person(request), **neighbour)
    except reordering.NotWaiting as error:
        return _redirect_with_notice(request, str(error))
    except Http404:
        return _redirect_with_notice(request, "The other run no longer exists. Nothing was moved.")
    return _redirect_to_queue()


@require_POST
@operator_required
def queue_priority(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run, value = queries.run_for(request, run_id), request.POST.get("priority", "")
    selected_priority = next((priority for priority in Priority if str(priority.value) == value), None)
    if selected_priority is None:
        return _bad_request("Use priority=1 (high), 0 (normal) or -1 (low).")
    try:
        reordering.set_priority(run, selected_priority, person(request))
    except reordering.NotWaiting as error:
        return _redirect_with_notice(request, str(error))
    return _redirect_to_queue()


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def queue_remove(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Show the page that confirms a run's removal from the queue; on POST, remove it unless it has started."""
    run = queries.run_for(request, run_id)
    attempt = run.latest()
    if request.method == "POST":
        if stopping.cancel(attempt, person(request)):
            messages.success(request, f"{run.name} was removed from the queue.")
            return redirect("hardware")
        return _redirect_with_notice(request, f"{run.name} had already left the queue. Nothing was stopped.")
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


def _redirect_to_queue() -> HttpResponseBase:
    return redirect(f"{reverse('hardware')}#queue")


def _redirect_with_notice(request: HttpRequest, message: str) -> HttpResponseBase:
    messages.info(request, message)
    return redirect("hardware")


def _bad_request(message: str) -> HttpResponse:
    return HttpResponse(message, status=400, content_type="text/plain")
