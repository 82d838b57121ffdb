"""The list of datasets, and the main page of a version."""

from typing import Any

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages.forms import name_problem, named_after_file
from controlplane.catalogue.datasets.pages.showing import overview, progress_context, source, version_context
from controlplane.catalogue.datasets.queries import newest_versions, version_for
from controlplane.catalogue.datasets.work_queue import progress
from controlplane.platform.accounts.roles import operator_required

PAGE_SIZE = 100


@require_GET
def datasets(request: HttpRequest) -> HttpResponse:
    """List the newest version of each dataset by name, archived ones only on request."""
    return render(request, "catalogue/datasets/list.html", listing(request))


def listing(request: HttpRequest) -> dict[str, Any]:
    """Build the list's template context for an address such as ?q=words&archived=1&page=2."""
    query = " ".join(request.GET.get("q", "").split())[:200]
    archived = request.GET.get("archived") == "1"
    versions = newest_versions(request)
    matches = [v for v in versions if (archived or v.archived_at is None) and _matches(v, query)]
    page = Paginator(matches, PAGE_SIZE).get_page(request.GET.get("page"))
    rows = [{"version": version, "source": source(version), "progress": progress(version)} for version in page]
    return {
        "rows": rows,
        "page": page,
        "query": query,
        "archived": archived,
        "away": sum(version.archived_at is not None for version in versions),
        "any": bool(versions),
        "at_work": any(row["progress"] for row in rows),
    }


def _matches(version: DatasetVersion, query: str) -> bool:
    owner = version.dataset.owner
    haystack = " ".join((version.dataset.name, source(version)["text"], owner.username if owner else "")).casefold()
    return all(word in haystack for word in query.casefold().split())


@require_GET
def dataset(request: HttpRequest, dataset_id: int, number: int | None = None) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    return render(request, "catalogue/datasets/version.html", overview(version))


@require_GET
def state(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Show the worker's progress, which the page polls each second until the step is done."""
    try:
        version = version_for(request, dataset_id, number)
    except Http404:
        if "HX-Request" not in request.headers:
            raise
        return HttpResponse(headers={"HX-Refresh": "true"})  # cancelled in another tab: the reloaded page says so
    step = f"{version.status}:{bool(version.mapping)}"
    if version.status not in DatasetVersion.AT_WORK or request.GET.get("step", step) != step:
        return HttpResponse(headers={"HX-Refresh": "true"})  # the rest of the page has changed as well
    return render(request, "catalogue/datasets/_progress.html", version_context(version) | progress_context(version))


@operator_required
@require_GET
def name(request: HttpRequest) -> JsonResponse:
    """Check a new dataset's name, or the one made from its file's name, before a large file is uploaded."""
    new_name, file_name = (request.GET.get(key, "").strip() for key in ("name", "file"))
    new_name = new_name or (named_after_file(file_name) if file_name else "")
    return JsonResponse({"problem": name_problem(new_name) if new_name else ""})
