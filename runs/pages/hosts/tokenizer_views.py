"""A model's tokenizer for a dataset version: a host inspects the model and uploads its tokenizer and chat template."""

import json
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.catalogue.datasets import tokenizers
from controlplane.catalogue.datasets.queries import version_for
from controlplane.catalogue.hardware import inspections
from controlplane.catalogue.hardware.models import Host, ModelInspection
from controlplane.platform.accounts.roles import operator_required
from controlplane.platform.http.keyset import whole_parameter
from runs.engine.hosts.view import host_views

MAX_MODEL_CHARS = 500
MAX_UPLOAD_DELAY = timedelta(seconds=60)
"""Maximum time between a host's response and the upload that it announces."""


@operator_required
@require_http_methods(["GET", "POST"])
def tokenizer(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Request the tokenizer of `model`. GET with `inspection` polls until the host has responded."""
    version = version_for(request, dataset_id, number)
    context: dict[str, Any] = {"version": version, "dataset": version.dataset}
    if request.method == "GET":
        pk = whole_parameter(request, "inspection", 0, 0, 10**11)
        return _render(request, context, get_object_or_404(ModelInspection.objects.select_related("host"), pk=pk))
    model = request.POST.get("model", "").strip()[:MAX_MODEL_CHARS]
    host = _host(model)
    context |= {"model": model, "host": host}
    if not model or host is None:
        return render(request, "catalogue/datasets/_tokenizer.html", context)
    try:
        return _render(request, context, ask(host, model))
    except inspections.HostAway:
        return render(request, "catalogue/datasets/_tokenizer.html", context | {"away": True})


def ask(host: Host, model: str) -> ModelInspection:
    """Ask a host for a model's tokenizer, or reuse a recent inspection if the tokenizer is stored. Raises
    inspections.HostAway if the request can't be sent to the host."""
    return inspections.request_inspection(host, model, force=tokenizers.of_model(model) is None)


def _render(request: HttpRequest, context: dict[str, Any], inspection: ModelInspection) -> HttpResponse:
    tokenizer_file = tokenizers.of_model(inspection.model, inspection.revision) if inspection.answered_at else None
    context |= {
        "model": inspection.model,
        "host": inspection.host,
        "inspection": inspection,
        "overdue": inspections.is_overdue(inspection),
        "stored": tokenizer_file,
        "coming": tokenizer_file is None and _is_upload_expected(inspection),
        "note": tokenizers.note(inspection) if inspection.answered_at else "",
    }
    response = render(request, "catalogue/datasets/_tokenizer.html", context)
    if tokenizer_file is not None:
        response["HX-Trigger"] = json.dumps(
            {"tokenizerfound": {"sha256": tokenizer_file.sha256, "model": tokenizer_file.model}}
        )
    return response


def _is_upload_expected(inspection: ModelInspection) -> bool:
    # The upload arrives shortly after the response that announces it.
    is_recent = inspection.answered_at is not None and timezone.now() - inspection.answered_at <= MAX_UPLOAD_DELAY
    return is_recent and tokenizers.is_missing(inspection)


def _host(model: str) -> Host | None:
    """Choose a reachable host that has the model, otherwise any reachable host; return None if there is none."""
    hosts = [view for view in host_views() if view.fresh]
    hosts_with_model = [view for view in hosts if model in view.models]
    return next((view.row for view in (*hosts_with_model, *hosts)), None)
