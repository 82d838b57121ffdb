"""Ending a warm server."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine import queries
from runs.engine.warm import assignment, overview


@require_POST
@operator_required
def end(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """At once if it is idle, otherwise after the run that uses it."""
    run = queries.run_for(request, run_id)
    line = overview.line_of(run)
    if line is None:
        messages.info(request, f"{run.name} is no warm server, or has ended.")
    elif not assignment.end(line.row, person(request)):
        messages.info(request, f"{run.name} already ends.")
    elif line.user:
        messages.success(request, f"{run.name} ends when {line.user.name} has ended.")
    else:
        messages.success(request, f"{run.name} ends now.")
    return redirect("hardware")
