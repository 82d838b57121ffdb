"""Pages that add a dataset or a version from an upload, typed rows, the hub, a server path, or reasoning-gym."""

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from controlplane.catalogue.datasets import reader_process
from controlplane.catalogue.datasets.errors import DatasetError, NameTaken
from controlplane.catalogue.datasets.models import Dataset
from controlplane.catalogue.datasets.pages.forms import AddingForm, HubForm, PathForm, RowsForm, TasksForm, UploadForm
from controlplane.catalogue.datasets.queries import dataset_for
from controlplane.catalogue.datasets.reader.parsing.formats import NAMES
from controlplane.catalogue.datasets.receiving import incoming_folder
from controlplane.catalogue.datasets.sources import roots
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http import upload as uploading
from controlplane.platform.http.form_pages import form_page

UPLOAD = "upload"
MAX_PREFILLED = 200
"""Maximum length of a value that a link fills into a form."""
FORMS: dict[str, type[AddingForm]] = {"rows": RowsForm, "hub": HubForm, "path": PathForm, "tasks": TasksForm}
"""Forms by the origin of the rows, other than an upload."""


@operator_required
@require_http_methods(["GET", "POST"])
def upload(request: HttpRequest, dataset_id: int | None = None) -> HttpResponse:
    dataset = dataset_for(request, dataset_id) if dataset_id is not None else None
    # Both are empty if the upload was rejected.
    form_arguments = (request.POST, request.FILES) if request.method == "POST" else ()
    form = UploadForm(*form_arguments, dataset=dataset)
    upload_problem = uploading.problem(request)
    if upload_problem:
        form.full_clean()
        form.errors.pop("file", None)
        form.add_error("file", upload_problem)
        return _page(request, form, dataset, UPLOAD)
    return _create_or_show(request, form, dataset, UPLOAD)


@require_safe
def sample(request: HttpRequest, kind: str) -> HttpResponse:
    """Download a small sample file in one format, as a model for other files."""
    if kind not in NAMES:
        raise Http404(f"There is no sample file in the format {kind}.")
    try:
        content = b"".join(reader_process.stream(incoming_folder(), "sample", {"format": kind}))
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("datasets")
    headers = {"Content-Disposition": f'attachment; filename="sample.{kind}"'}
    return HttpResponse(content, content_type="application/octet-stream", headers=headers)


@operator_required
@require_http_methods(["GET", "POST"])
def add(request: HttpRequest, origin: str, dataset_id: int | None = None) -> HttpResponse:
    """Add a dataset or a version from one of the origins in FORMS."""
    dataset = dataset_for(request, dataset_id) if dataset_id is not None else None
    prefilled = {name: value for name, value in request.GET.items() if len(value) <= MAX_PREFILLED}
    return _create_or_show(
        request, FORMS[origin](request.POST or None, dataset=dataset, initial=prefilled), dataset, origin
    )


def _create_or_show(request: HttpRequest, form: AddingForm, dataset: Dataset | None, origin: str) -> HttpResponse:
    if request.method == "POST" and form.is_valid():
        name = dataset.name if dataset else form.cleaned_data["name"]
        try:
            return redirect(form.create(person(request), name, must_be_new=dataset is None))
        except DatasetError as error:
            name_taken = isinstance(error, NameTaken) and dataset is None
            form.add_error("name" if name_taken else form.error_field, str(error))
    return _page(request, form, dataset, origin)


def _page(request: HttpRequest, form: AddingForm, dataset: Dataset | None, origin: str) -> HttpResponse:
    context = {
        "form": form,
        "dataset": dataset,
        "origin": origin,
        "limit": settings.DATASET_MAX_BYTES,
        "roots": roots(),
        "formats": NAMES,
    }
    return form_page(request, "catalogue/datasets/new.html", context)
