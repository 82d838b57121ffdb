"""The key of a run's gateway, shown to those who may launch runs."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from controlplane.platform.accounts.roles import operator_required
from controlplane.platform.http import tokens
from runs.engine import queries
from runs.engine.gateway import endpoint


@require_POST
@operator_required
def key(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    found = endpoint.of(run)
    if found is None:
        raise Http404("The run has no gateway.")
    answer = render(request, "engine/gateway/_key.html", {"gateway": found, "key": tokens.gateway_key(run.pk)})
    answer["Cache-Control"] = "no-store"
    return answer
