"""Import of a config into the New run form, and exports of the form or of a run in the formats of other tools."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.exchange import writing
from controlplane.catalogue.exchange.documents import MOST_BYTES, content_of
from controlplane.catalogue.exchange.reading import UnreadableDocument
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http import upload
from controlplane.platform.http.body_limit import reads_at_most
from runs.engine import queries
from runs.engine.spec import freeze, spec_of
from runs.launch.new_run import importing
from runs.launch.new_run import search_example as search_examples
from runs.launch.new_run.drafting import checked, findings_of, host_numbered, schema_of
from runs.launch.new_run.dry_run import DRAFT, NothingToShow
from runs.launch.new_run.forms import LaunchForm
from runs.launch.new_run.views import bound_form, page
from workers.contract.run.spec import RunSpec
from workers.contract.wire.documents import ContractError


@reads_at_most(MOST_BYTES)
@require_POST
@operator_required
def import_config(request: HttpRequest) -> HttpResponse:
    """The same page, with the document's settings over what is typed; launches and stores nothing."""
    schema = schema_of(host_numbered(request.POST.get("host")))
    try:
        content = _document(request)
        imported = importing.read(content, request.POST, schema)
    except UnreadableDocument as error:
        form = LaunchForm(request.POST, schema=schema)
        plain = importing.without_open_choices(LaunchForm(request.POST, schema=schema))
        return _form_page(request, form, shown=plain, import_problem=str(error), status=422)
    text = content.decode("utf-8-sig", "replace")
    form = LaunchForm(imported.data, schema=schema)
    return _form_page(request, form, shown=imported.form(), imported=imported, import_text=text)


@require_POST
@operator_required
def search_example(request: HttpRequest) -> HttpResponse:
    """The same page with the search example chosen; makes its corpus, questions, environment and rewards if missing."""
    data = {name: request.POST[name] for name in request.POST}
    schema, problem = schema_of(host_numbered(request.POST.get("host"))), ""
    try:
        example = search_examples.make(person(request))
        data |= {"environment": str(example.environment.pk), "reward_version": str(example.rewards.pk)}
        if example.questions is not None:
            data["dataset_version"] = str(example.questions.pk)
        if not example.ready:
            problem = "The sample’s corpus and questions are being made. Choose them again in a few seconds."
    except DatasetError as error:
        problem = str(error)
    form = LaunchForm(data, schema=schema)
    plain = importing.without_open_choices(LaunchForm(data, schema=schema))
    return _form_page(request, form, shown=plain, example_problem=problem)


@require_POST
@operator_required
def export_draft(request: HttpRequest) -> HttpResponseBase:
    """Export the form in the format that the button names."""
    form = bound_form(request)
    try:
        if not form.is_valid():
            raise NothingToShow("Choose everything and fix what Preflight marks red first.")
        return _file(freeze(checked(form).request, DRAFT), request.POST.get("format", ""))
    except (NothingToShow, ContractError) as error:
        form.is_valid()
        form.add_error(None, f"No export yet: {error}")
        draft_check = checked(form, person(request))
        findings = findings_of(form, draft_check)
        return page(request, form, draft_check=draft_check, findings=findings, status=422)


@require_safe
def run_export(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Export a frozen run in the format `?format=`."""
    run = queries.run_for(request, run_id)
    try:
        return _file(replace(spec_of(run), name=run.name), request.GET.get("format", ""))
    except ContractError as error:
        messages.error(request, f"{run.name} can't be exported: {error}")
        return redirect("run", run.pk)


def _file(spec: RunSpec, name: str) -> HttpResponse:
    files = writing.formats(spec.hardware)
    file = next((file for file in files if file.name == name), files[0])
    answer = HttpResponse(file.write(spec), content_type="text/plain; charset=utf-8")
    answer["Content-Disposition"] = f'attachment; filename="{spec.run_id}-{file.name}"'
    return answer


def _document(request: HttpRequest) -> bytes:
    if problem := upload.problem(request):
        raise UnreadableDocument(problem)
    file = request.FILES.get("import_file")
    if file is not None:
        return content_of(file)
    text = request.POST.get("import_text", "")
    if not text.strip():
        raise UnreadableDocument("Choose a file, or paste a config.")
    return text.encode(errors="replace")


def _form_page(request: HttpRequest, checking: LaunchForm, *, status: int = 200, **extra: Any) -> HttpResponse:
    """The page for a form whose open choices are no errors yet."""
    draft_check = checked(checking, person(request))
    findings = findings_of(checking, draft_check)
    extra = {"import_text": request.POST.get("import_text", ""), **extra}
    return page(request, checking, draft_check=draft_check, findings=findings, status=status, **extra)
