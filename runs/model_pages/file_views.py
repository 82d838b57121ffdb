"""What operators do with a model's files: merge it, download it, delete it."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.accounts.roles import operator_required, person
from runs.jobs import merging
from runs.model_pages import catalogue
from runs.scheduling.limits import QueueFull
from workers.contract import ContractError


@require_POST
@operator_required
def merge(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    try:
        merging.start(model.checkpoint, person(request), dtype=request.POST.get("dtype", ""))
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be merged: {error}")
    return redirect("model", event_id)
