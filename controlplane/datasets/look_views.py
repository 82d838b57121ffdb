"""Looking at a version: its problems, its rows by a filter, one row in full, its export, and a version of some rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import content_disposition_header
from django.views.decorators.http import require_GET, require_POST

from controlplane.accounts.roles import operator_required, person
from controlplane.datasets import deriving, exporting, looking, problem_pages
from controlplane.datasets.errors import DatasetError
from controlplane.datasets.filter_forms import DeriveForm, FilterForm
from controlplane.datasets.forms import name_problem
from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.queries import version_for
from controlplane.datasets.reader import files
from controlplane.datasets.reader.filtering import RowFilter
from controlplane.datasets.showing import CHECK, IMPORT, filter_words, shown_row, version_context
from controlplane.http.streams import file_answer

A_PAGE = 20


@require_GET
def report(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """All problems by kind; with ?kind= those of one, a page at a time, of the check or (&of=import) of the import."""
    version = version_for(request, dataset_id, number)
    context = version_context(version)
    told = context["mapped"] if _of(request) == IMPORT else context["report"]
    kind = request.GET.get("kind", "")
    page = problem_pages.page(told, kind, _whole(request.GET.get("page"), 1)) if kind else None
    context |= {
        "of": _of(request),
        "kind_page": page,
        "groups": problem_pages.groups(context["report"]),
        "mapped_groups": problem_pages.groups(context["mapped"]),
        "tab": "report",
    }
    return render(request, "datasets/report.html", context)


@require_GET
def problems(request: HttpRequest, dataset_id: int, number: int) -> HttpResponseBase:
    """Every problem as JSON Lines. Where the file is gone, those that the report kept."""
    version = version_for(request, dataset_id, number)
    of_import = _of(request) == IMPORT
    name = f"{exporting.file_name(version, 'problems', filtered=False)}{'-mapping' if of_import else ''}.jsonl"
    try:
        file = (version.folder / (files.MAPPED_PROBLEMS if of_import else files.PROBLEMS)).open("rb")
    except OSError:
        told = (version.report.get("mapped") or {}) if of_import else version.report
        body = "".join(f"{json.dumps(problem)}\n" for problem in told.get("problems") or [])
        answer = HttpResponse(body, content_type=exporting.TYPES[exporting.JSONL])
        answer["Content-Disposition"] = content_disposition_header(True, name) or "attachment"
        return answer
    return file_answer(request, file, exporting.TYPES[exporting.JSONL], save_as=name)


@require_GET
def rows(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    return render(request, "datasets/rows.html", _rows(request, version, DeriveForm(version)))


@require_GET
def row(request: HttpRequest, dataset_id: int, number: int, row: int) -> HttpResponse:
    """One row in full."""
    version = version_for(request, dataset_id, number)
    context = version_context(version) | {"row_id": row, "tab": "rows", "came_from": _came_from(request, version)}
    try:
        found = looking.row(version, row)
    except DatasetError as error:
        context["problem"] = str(error)
    else:
        context["row"] = shown_row(version, found) if found is not None else None
        context["whole"] = json.dumps(found, ensure_ascii=False, indent=2) if found is not None else ""
    return render(request, "datasets/row.html", context)


@require_GET
def export(request: HttpRequest, dataset_id: int, number: int) -> HttpResponseBase:
    """?as=jsonl or parquet, with the filter of the rows' page."""
    version = version_for(request, dataset_id, number)
    form = FilterForm(version, request.GET)
    try:
        if not form.is_valid():
            raise DatasetError("This filter can't be read: look at it on the rows' page.")
        return exporting.export(request, version, request.GET.get("as", exporting.JSONL), form.filter)
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect("dataset_version", dataset_id, number)


@operator_required
@require_POST
def derive(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """A version of the rows that the filter in the address means, or of those that are named by number."""
    version = version_for(request, dataset_id, number)
    form, shown = DeriveForm(version, request.POST, request.FILES), FilterForm(version, request.GET)
    if form.is_valid():
        name = form.cleaned_data["name"].strip()
        problem = name_problem(name) if name else ""
        if problem:
            form.add_error("name", problem)
        elif not shown.is_valid():
            form.add_error(None, "The filter above can't be read.")
        else:
            try:
                made = deriving.derive(
                    person(request), version, _wanted(form, shown), name=name, tokenizer=_tokenizer(form)
                )
            except DatasetError as error:
                form.add_error(None, str(error))
            else:
                return redirect(made)
    return render(request, "datasets/rows.html", _rows(request, version, form), status=400)


def _wanted(form: DeriveForm, shown: FilterForm) -> RowFilter:
    """Row numbers stand for themselves; the filter is for those who name none. Tokens are counted of either."""
    ids = form.cleaned_data["row_ids"]
    wanted = shown.filter if ids is None else RowFilter(row_ids=ids)
    return replace(wanted, max_prompt_tokens=form.cleaned_data["tokens"])


def _tokenizer(form: DeriveForm) -> str:
    return str(form.cleaned_data["tokenizer"]) if form.cleaned_data["tokens"] else ""


def _rows(request: HttpRequest, version: DatasetVersion, derive_form: DeriveForm) -> dict[str, Any]:
    form = FilterForm(version, request.GET)
    after = _whole(request.GET.get("after"), 0)
    context = version_context(version) | {"tab": "rows", "form": form, "derive_form": derive_form, "after": after}
    if not form.is_valid():
        return context | {"problem": "This filter can't be read."}
    query, wanted = form.query, form.filter
    context |= {"query": query, "filtered": bool(wanted), "words": filter_words(wanted.as_dict())}
    try:
        found = looking.look(version, wanted, after, A_PAGE)
        if wanted and not after:
            context["found"] = looking.count(version, wanted)
    except DatasetError as error:
        return context | {"problem": str(error)}
    shown = [shown_row(version, each) for each in found["rows"]]
    return context | {
        "rows": shown,
        "next": found.get("next"),
        "before": max(0, after - A_PAGE) if after and not wanted else None,
        "first_place": shown[0]["position"] + 1 if shown else 0,
        "last_place": shown[-1]["position"] + 1 if shown else 0,
    }


def _came_from(request: HttpRequest, version: DatasetVersion) -> str:
    """The filter that led to this row, to go back to it; built anew, so that it can hold nothing else."""
    form = FilterForm(version, request.GET)
    return form.query if form.is_valid() else ""


def _of(request: HttpRequest) -> str:
    return IMPORT if request.GET.get("of") == IMPORT else CHECK


def _whole(text: str | None, otherwise: int) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 12 else otherwise
