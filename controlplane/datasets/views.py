"""The dataset pages: the list, the upload, and one version with its verdict, mapping, problems and rows."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from controlplane.accounts.roles import operator_required, person
from controlplane.datasets import flow
from controlplane.datasets import upload as uploading
from controlplane.datasets.forms import MappingForm, UploadForm
from controlplane.datasets.models import Dataset, DatasetVersion
from controlplane.datasets.queries import dataset_for, listed, version_for
from controlplane.datasets.showing import example_of, shown_version


@require_GET
def datasets(request: HttpRequest) -> HttpResponse:
    return render(request, "datasets/list.html", {"versions": listed(request)})


@require_GET
def dataset(request: HttpRequest, dataset_id: int, number: int | None = None) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    return render(request, "datasets/version.html", shown_version(version))


@require_GET
def state(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """What changes while a version is checked; the page asks each second until it is done."""
    version = version_for(request, dataset_id, number)
    if version.status != DatasetVersion.CHECKING:
        return HttpResponse(headers={"HX-Refresh": "true"})  # what stands around it has changed as well
    return render(request, "datasets/_state.html", shown_version(version))


@operator_required
@require_http_methods(["GET", "POST"])
def upload(request: HttpRequest) -> HttpResponse:
    return _upload(request, None)


@operator_required
@require_http_methods(["GET", "POST"])
def upload_version(request: HttpRequest, dataset_id: int) -> HttpResponse:
    return _upload(request, dataset_for(request, dataset_id))


def _upload(request: HttpRequest, dataset: Dataset | None) -> HttpResponse:
    form = UploadForm(request.POST or None, request.FILES or None, dataset=dataset)
    stopped = uploading.problem(request) if request.method == "POST" else ""
    if stopped:
        form.full_clean()
        form.errors.pop("file", None)
        form.add_error("file", stopped)
    elif request.method == "POST" and form.is_valid():
        name = dataset.name if dataset else form.cleaned_data["name"]
        file = form.cleaned_data["file"]
        try:
            version = flow.create_version(person(request), name, file, file.name, new=dataset is None)
        except flow.DatasetError as error:
            form.add_error("name" if isinstance(error, flow.NameTaken) and dataset is None else "file", str(error))
        else:
            flow.send_to_worker(version)
            return redirect("dataset_version", version.dataset_id, version.number)
    context = {"form": form, "dataset": dataset, "limit": settings.DATASET_MAX_BYTES}
    return render(request, "datasets/upload.html", context, status=400 if form.errors else 200)


@operator_required
@require_GET
def example(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """A real row, drawn with the mapping that the form has at this moment."""
    version = version_for(request, dataset_id, number)
    form = MappingForm(version, request.GET)
    context: dict[str, Any] = {"form": form}
    if form.is_valid():
        context["example"] = example_of(version, form.mapping(leave_out=False))
    return render(request, "datasets/_example.html", context)


@operator_required
@require_POST
def mapping(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    form = MappingForm(version, request.POST)
    if not form.is_valid():
        return render(request, "datasets/version.html", shown_version(version, form), status=400)
    # Lines that can't be read were left out by an act of its own; here it is about rows that the mapping doesn't fit.
    leave_out = bool(version.report.get("error_count")) or request.POST.get("leave_out") == "1"
    if not flow.ask_for_rows(version, form.mapping(leave_out=leave_out)):
        messages.warning(request, "Somebody has mapped this version already.")
    return _to(version)


@operator_required
@require_POST
def leave_out(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if not flow.leave_bad_lines_out(version):
        messages.error(request, "This version can't be used without its bad lines.")
    return _to(version)


@operator_required
@require_POST
def map_again(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """The same file as a new version, to be mapped in another way: a ready version never changes."""
    old = version_for(request, dataset_id, number)
    try:
        with old.source_path.open("rb") as file:
            version = flow.create_version(person(request), old.dataset.name, file, old.file_name)
    except (flow.DatasetError, FileNotFoundError) as error:
        messages.error(request, str(error))
        return _to(old)
    flow.send_to_worker(version)
    return _to(version)


@operator_required
@require_POST
def delete(request: HttpRequest, dataset_id: int) -> HttpResponse:
    return _delete_dataset(request, dataset_id)


def _delete_dataset(request: HttpRequest, dataset_id: int) -> HttpResponse:
    dataset = dataset_for(request, dataset_id)
    try:
        flow.delete_dataset(dataset)
    except flow.DatasetError as error:
        messages.error(request, str(error))
        return redirect("dataset", dataset_id)
    messages.success(request, f"Deleted {dataset.name} with all its versions.")
    return redirect("datasets")


@operator_required
@require_POST
def delete_version(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if version.dataset.versions.count() == 1:
        return _delete_dataset(request, dataset_id)
    try:
        flow.delete_version(version)
    except flow.DatasetError as error:
        messages.error(request, str(error))
        return _to(version)
    messages.success(request, f"Deleted version {number}.")
    return redirect("dataset", dataset_id)


def _to(version: DatasetVersion) -> HttpResponse:
    return redirect("dataset_version", version.dataset_id, version.number)
