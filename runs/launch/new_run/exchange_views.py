"""Import of a config into the New run form, and exports of the form or of a run in the formats of other tools."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.exchange import writing
from controlplane.catalogue.exchange.documents import MAX_BYTES, content_of
from controlplane.catalogue.exchange.reading import UnreadableDocument
from controlplane.catalogue.hardware.models import Host
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http import upload
from controlplane.platform.http.body_limit import reads_at_most
from runs.engine import queries
from runs.engine.spec import freeze, spec_of
from runs.launch.new_run import importing, several
from runs.launch.new_run import search_example as search_examples
from runs.launch.new_run.drafting import checked, schema_of
from runs.launch.new_run.dry_run import NothingToShow
from runs.launch.new_run.fields.choice_fields import row_by_id
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.views import bound_form, page, show_refusal
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError


@reads_at_most(MAX_BYTES)
@require_POST
@operator_required
def import_config(request: HttpRequest) -> HttpResponse:
    """Show the form with the document's settings in place of the typed ones. Nothing is launched or stored."""
    schema = schema_of(row_by_id(Host, request.POST.get("host")))
    try:
        content = _document(request)
        imported = importing.read(content, request.POST, schema)
    except UnreadableDocument as error:
        return _form_page(request, request.POST, schema, import_problem=str(error), status=422)
    document = content.decode("utf-8-sig", "replace")
    return _form_page(
        request, imported.data, schema, shown_form=imported.form(), imported=imported, import_text=document
    )


@require_POST
@operator_required
def search_example(request: HttpRequest) -> HttpResponse:
    """Create the missing parts of the search example and show the form with the example chosen."""
    data = {name: request.POST[name] for name in request.POST}
    schema, problem = schema_of(row_by_id(Host, request.POST.get("host"))), ""
    try:
        example = search_examples.create(person(request))
        data |= {"environment": str(example.environment.pk), "reward_version": str(example.rewards.pk)}
        if example.questions is not None:
            data["dataset_version"] = str(example.questions.pk)
        if not example.ready:
            problem = "The sample’s corpus and questions are being created. Choose the example again in a few seconds."
    except DatasetError as error:
        problem = str(error)
    return _form_page(request, data, schema, example_problem=problem)


@require_POST
@operator_required
def export_draft(request: HttpRequest) -> HttpResponseBase:
    form = bound_form(request)
    try:
        if not form.is_valid():
            raise NothingToShow("Make every required choice and fix the problems that Preflight marks red first.")
        return _file(freeze(checked(form).request, "draft"), request.POST.get("format", ""))
    except (NothingToShow, ContractError) as error:
        return show_refusal(request, form, f"The settings can't be exported yet: {error}")


@require_safe
def run_export(request: HttpRequest, run_id: str) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    try:
        return _file(replace(spec_of(run), name=run.name), request.GET.get("format", ""))
    except ContractError as error:
        messages.error(request, f"{run.name} can't be exported: {error}")
        return redirect("run", run.pk)


def _file(spec: RunSpec, name: str) -> HttpResponse:
    files = writing.formats(spec.hardware)
    file = next((file for file in files if file.name == name), files[0])
    response = HttpResponse(file.write(spec), content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{spec.run_id}-{file.name}"'
    return response


def _document(request: HttpRequest) -> bytes:
    if problem := upload.problem(request):
        raise UnreadableDocument(problem)
    file = request.FILES.get("import_file")
    if file is not None:
        return content_of(file)
    document = request.POST.get("import_text", "")
    if not document.strip():
        raise UnreadableDocument("Choose a file, or paste a config.")
    return document.encode(errors="replace")


def _form_page(
    request: HttpRequest, data: Mapping[str, Any], schema: Any, *, shown_form: LaunchForm | None = None, **extra: Any
) -> HttpResponse:
    """Render the page with these values; missing choices aren't shown as errors yet."""
    form = LaunchForm(data, schema=schema)
    shown_form = shown_form or importing.without_open_choices(LaunchForm(data, schema=schema))
    extra = {"import_text": request.POST.get("import_text", ""), **extra}
    return page(request, form, checks=several.check_single(form, person(request)), shown_form=shown_form, **extra)
