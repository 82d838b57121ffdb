"""Pages to browse a version: its problems, filtered rows, single rows, exports, and derivation of versions."""

import json
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET, require_POST

from controlplane.catalogue.datasets import browsing, deriving, exporting
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages import problem_pages
from controlplane.catalogue.datasets.pages.filter_forms import DeriveForm, FilterForm
from controlplane.catalogue.datasets.pages.forms import name_problem
from controlplane.catalogue.datasets.pages.showing import CHECK, IMPORT, filter_sentence, shown_row, version_context
from controlplane.catalogue.datasets.queries import version_for
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.keyset import whole_parameter
from controlplane.platform.http.streams import file_response

PAGE_SIZE = 20


@require_GET
def report(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Show the check's (with ?of=import, the import's) problems by kind or, with ?kind=, a page of one kind."""
    version = version_for(request, dataset_id, number)
    context = version_context(version)
    problem_report = context["mapped"] if _report_kind(request) == IMPORT else context["report"]
    kind = request.GET.get("kind", "")
    page = problem_pages.page(problem_report, kind, whole_parameter(request, "page", 1, 1, 10**6)) if kind else None
    context |= {
        "of": _report_kind(request),
        "kind_page": page,
        "groups": problem_pages.groups(context["report"]),
        "mapped_groups": problem_pages.groups(context["mapped"]),
        "tab": "report",
    }
    return render(request, "catalogue/datasets/report.html", context)


@require_GET
def problems(request: HttpRequest, dataset_id: int, number: int) -> HttpResponseBase:
    """Download all problems as JSON Lines, or only those in the report if the file of all problems is missing."""
    version = version_for(request, dataset_id, number)
    of_import = _report_kind(request) == IMPORT
    name = f"{exporting.file_name(version, 'problems', is_filtered=False)}{'-mapping' if of_import else ''}.jsonl"
    try:
        file = (version.folder / (files.MAPPED_PROBLEMS if of_import else files.PROBLEMS)).open("rb")
    except OSError:
        problem_report = (version.report.get("mapped") or {}) if of_import else version.report
        body = "".join(f"{json.dumps(problem)}\n" for problem in problem_report.get("problems") or [])
        response = HttpResponse(body, content_type=exporting.TYPES[exporting.JSONL])
        response["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
        return response
    return file_response(request, file, exporting.TYPES[exporting.JSONL], save_as=name)


@require_GET
def rows(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    return render(request, "catalogue/datasets/rows.html", _rows(request, version, DeriveForm(version)))


@require_GET
def row(request: HttpRequest, dataset_id: int, number: int, row: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    context = version_context(version) | {"row_id": row, "tab": "rows"}
    form = FilterForm(version, request.GET)
    # The filter that led here, for the link back and the neighbors; rebuilt, so that it contains only filter fields.
    context["came_from"] = form.query if form.is_valid() else ""
    try:
        result = browsing.row(version, row, form.filter if form.is_valid() else browsing.ALL_ROWS)
    except DatasetError as error:
        context["problem"] = str(error)
    else:
        row_data = result["row"]
        context |= {"before": result["before"], "after": result["after"]}
        context["row"] = shown_row(version, row_data) if row_data is not None else None
        context["whole"] = json.dumps(row_data, ensure_ascii=False, indent=2) if row_data is not None else ""
    return render(request, "catalogue/datasets/row.html", context)


@require_GET
def export(request: HttpRequest, dataset_id: int, number: int) -> HttpResponseBase:
    """Download the rows that pass the address's filter, as JSON Lines or Parquet (?as=jsonl or parquet)."""
    version = version_for(request, dataset_id, number)
    form = FilterForm(version, request.GET)
    try:
        if not form.is_valid():
            raise DatasetError("This filter is invalid. Check it on the Rows page.")
        return exporting.export(request, version, request.GET.get("as", exporting.JSONL), form.filter)
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("dataset_version", dataset_id, number)


@operator_required
@require_POST
def derive(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Derive a version from the rows that pass the address's filter, or from rows listed by number."""
    version = version_for(request, dataset_id, number)
    form, filter_form = DeriveForm(version, request.POST, request.FILES), FilterForm(version, request.GET)
    if form.is_valid():
        name = form.cleaned_data["name"].strip()
        problem = name_problem(name) if name else ""
        if problem:
            form.add_error("name", problem)
        elif not filter_form.is_valid():
            form.add_error(None, "The filter above is invalid.")
        else:
            try:
                derived_version = deriving.derive(
                    person(request), version, filter_of(form, filter_form), name=name, tokenizer=tokenizer_of(form)
                )
            except DatasetError as error:
                form.add_error(None, str(error))
            else:
                return redirect(derived_version)
    return render(request, "catalogue/datasets/rows.html", _rows(request, version, form), status=422)


def filter_of(form: DeriveForm, filter_form: FilterForm) -> RowFilter:
    """Return the filter of a derived version: the form's row numbers replace the page's filter, and the form's other
    conditions always apply."""
    ids = form.cleaned_data["row_ids"]
    row_filter = filter_form.filter if ids is None else RowFilter(row_ids=ids)
    return replace(row_filter, **form.conditions())


def tokenizer_of(form: DeriveForm) -> str:
    return str(form.cleaned_data["tokenizer"]) if form.cleaned_data["tokens"] else ""


def _rows(request: HttpRequest, version: DatasetVersion, derive_form: DeriveForm) -> dict[str, Any]:
    form = FilterForm(version, request.GET)
    after = whole_parameter(request, "after", 0, 0, 10**11)
    context = version_context(version) | {"tab": "rows", "form": form, "derive_form": derive_form, "after": after}
    if not form.is_valid():
        return context | {"problem": "This filter is invalid."}
    query, row_filter = form.query, form.filter
    context |= {"query": query, "filtered": bool(row_filter), "sentence": filter_sentence(row_filter.as_dict())}
    try:
        rows_page = browsing.page(version, row_filter, start=after, limit=PAGE_SIZE)
        if row_filter and not after:
            context["found"] = browsing.count(version, row_filter)
    except DatasetError as error:
        return context | {"problem": str(error)}
    shown_rows = [shown_row(version, row) for row in rows_page["rows"]]
    return context | {
        "rows": shown_rows,
        "next": rows_page["next"],
        "before": max(0, after - PAGE_SIZE) if after and not row_filter else None,
        "first_number": shown_rows[0]["position"] + 1 if shown_rows else 0,
        "last_number": shown_rows[-1]["position"] + 1 if shown_rows else 0,
    }


def _report_kind(request: HttpRequest) -> str:
    return IMPORT if request.GET.get("of") == IMPORT else CHECK
