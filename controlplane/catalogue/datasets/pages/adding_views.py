"""Pages that add a dataset or a version of one: from an upload, typed rows, the hub, a path on the server, or tasks
of reasoning-gym."""

from __future__ import annotations

import io
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.catalogue.datasets import importing, reader_process
from controlplane.catalogue.datasets.errors import DatasetError, NameTaken
from controlplane.catalogue.datasets.models import Dataset, DatasetVersion
from controlplane.catalogue.datasets.pages.forms import HubForm, PathForm, RowsForm, TasksForm, UploadForm
from controlplane.catalogue.datasets.queries import dataset_for
from controlplane.catalogue.datasets.reader.parsing.formats import NAMES
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.catalogue.datasets.sources import roots
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http import upload as uploading
from controlplane.platform.http.form_pages import form_page

AddingForm = UploadForm | RowsForm | HubForm | PathForm | TasksForm
UPLOAD = "upload"
WAYS: dict[str, tuple[type[AddingForm], str]] = {
    UPLOAD: (UploadForm, "file"),
    "rows": (RowsForm, "rows"),
    "hub": (HubForm, "id"),
    "path": (PathForm, "path"),
    "tasks": (TasksForm, "families"),
}
"""Way to add rows -> its form, and the field that gets its errors."""


@operator_required
@require_http_methods(["GET", "POST"])
def upload(request: HttpRequest, dataset_id: int | None = None) -> HttpResponse:
    dataset = dataset_for(request, dataset_id) if dataset_id is not None else None
    # Both are empty if the upload was stopped.
    submitted = (request.POST, request.FILES) if request.method == "POST" else ()
    form = UploadForm(*submitted, dataset=dataset)
    stopped = uploading.problem(request)
    if stopped:
        form.full_clean()
        form.errors.pop("file", None)
        form.add_error("file", stopped)
    elif request.method == "POST" and form.is_valid():
        return _make(request, form, dataset, UPLOAD)
    return _page(request, form, dataset, UPLOAD)


@require_safe
def sample(request: HttpRequest, kind: str) -> HttpResponse:
    """Download a small sample file in one format, to be filled with other rows."""
    if kind not in NAMES:
        raise Http404(f"There is no sample file of the format {kind}.")
    try:
        content = b"".join(reader_process.stream(incoming_folder(), "sample", {"format": kind}))
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("datasets")
    headers = {"Content-Disposition": f'attachment; filename="sample.{kind}"'}
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)


@operator_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest, way: str, dataset_id: int | None = None) -> HttpResponse:
    """Add a dataset or a version in one of the WAYS other than an upload."""
    dataset = dataset_for(request, dataset_id) if dataset_id is not None else None
    form = WAYS[way][0](request.POST or None, dataset=dataset)
    if request.method == "POST" and form.is_valid():
        return _make(request, form, dataset, way)
    return _page(request, form, dataset, way)


def _make(request: HttpRequest, form: AddingForm, dataset: Dataset | None, way: str) -> HttpResponse:
    name = dataset.name if dataset else form.cleaned_data["name"]
    try:
        version = created(person(request), form, name, new=dataset is None)
    except DatasetError as error:
        form.add_error("name" if isinstance(error, NameTaken) and dataset is None else WAYS[way][1], str(error))
        return _page(request, form, dataset, way)
    return redirect(version)


def created(user: User, form: AddingForm, name: str, *, new: bool) -> DatasetVersion:
    """Create the version that a valid form describes. Raises DatasetError."""
    if isinstance(form, HubForm):
        return importing.create_from_hub(user, name, form.source, new=new)
    if isinstance(form, PathForm):
        return importing.create_from_path(user, name, form.cleaned_data["path"], new=new)
    if isinstance(form, TasksForm):
        return importing.create_from_tasks(user, name, form.source, new=new)
    if isinstance(form, RowsForm):
        return importing.create_from_upload(user, name, io.BytesIO(form.cleaned_data["rows"].encode()), "rows", new=new)
    file = form.cleaned_data["file"]
    return importing.create_from_upload(user, name, file, file.name, new=new)


def _page(request: HttpRequest, form: Any, dataset: Dataset | None, way: str) -> HttpResponse:
    context = {
        "form": form,
        "dataset": dataset,
        "way": way,
        "limit": settings.DATASET_MAX_BYTES,
        "roots": roots(),
        "formats": NAMES,
    }
    return form_page(request, "catalogue/datasets/new.html", context)
