"""The list of datasets, and a version's own page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages.forms import name_problem, named_after_file
from controlplane.catalogue.datasets.pages.listing import listing
from controlplane.catalogue.datasets.pages.showing import overview, progress_context, version_context
from controlplane.catalogue.datasets.queries import version_for
from controlplane.platform.accounts.roles import operator_required


@require_GET
def datasets(request: HttpRequest) -> HttpResponse:
    return render(request, "catalogue/datasets/list.html", listing(request))


@require_GET
def dataset(request: HttpRequest, dataset_id: int, number: int | None = None) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    return render(request, "catalogue/datasets/version.html", overview(version))


@require_GET
def state(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """The worker's progress, which the page polls each second until the step is done."""
    try:
        version = version_for(request, dataset_id, number)
    except Http404:
        if "HX-Request" not in request.headers:
            raise
        return HttpResponse(
            headers={"HX-Refresh": "true"}
        )  # cancelled in another tab: reload, so that the page says so
    step = f"{version.status}:{bool(version.mapping)}"
    if version.status not in DatasetVersion.AT_WORK or request.GET.get("step", step) != step:
        return HttpResponse(headers={"HX-Refresh": "true"})  # the rest of the page has changed as well
    return render(request, "catalogue/datasets/_progress.html", version_context(version) | progress_context(version))


@operator_required
@require_GET
def name(request: HttpRequest) -> JsonResponse:
    """Check a new dataset's name, or its file's, before a large file is uploaded under it."""
    new_name, file_name = (request.GET.get(key, "").strip() for key in ("name", "file"))
    new_name = new_name or (named_after_file(file_name) if file_name else "")
    return JsonResponse({"problem": name_problem(new_name) if new_name else ""})
