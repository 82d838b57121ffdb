"""Starting standard benchmarks of a model."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from controlplane.platform.accounts.roles import operator_required, person
from runs.engine.artifacts import saved_models as catalogue
from runs.engine.jobs import benchmarking
from runs.engine.scheduling.limits import QueueFull
from workers.contract.wire.documents import ContractError


@require_POST
@operator_required
def benchmark(request: HttpRequest, event_id: int) -> HttpResponseBase:
    model = catalogue.model_for(request, event_id)
    examples = request.POST.get("limit", "").strip()
    limit = int(examples) if examples.isdecimal() and len(examples) < 10 else -1
    try:
        benchmarking.start(model.checkpoint, person(request), tasks=request.POST.getlist("tasks"), limit=limit)
    except (ContractError, QueueFull) as error:
        messages.error(request, f"This can't be benchmarked: {error}")
    return redirect("model", event_id)
