"""Pages of a version's mapping: previews on real rows, and the import."""

import json
from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.browsing import render_example
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion, Tokenizer
from controlplane.catalogue.datasets.pages.mapping_forms import MappingForm
from controlplane.catalogue.datasets.pages.showing import may_leave_out, overview, pretty
from controlplane.catalogue.datasets.queries import version_for
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, warnings
from controlplane.platform.accounts.roles import operator_required, person


@operator_required
@require_POST
def example(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Preview a row of the file with the form's current mapping. If the form has errors, they are sent to their fields
    as an event, and the preview isn't replaced."""
    version = version_for(request, dataset_id, number)
    form = MappingForm(version, request.POST, user=person(request), preview=True)
    if not form.is_valid():
        response = HttpResponse(status=204)  # nothing to swap
    else:
        row = request.POST.get("row", "")
        context = _example(version, form, int(row) if row.isdecimal() and len(row) < 9 else 0)
        response = render(request, "catalogue/datasets/_example.html", context)
    problems = {name: [str(error) for error in errors] for name, errors in form.errors.items()}
    response["HX-Trigger"] = json.dumps({"mappingproblems": problems})
    return response


@operator_required
@require_POST
def mapping(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Import with the submitted mapping, or show the form again with its errors."""
    version = version_for(request, dataset_id, number)
    form = MappingForm(version, request.POST, user=person(request))
    if version.status != DatasetVersion.NEEDS_MAPPING:
        messages.warning(request, "Someone has already mapped this version.")
        return redirect(version)
    if not form.is_valid():
        return render(request, "catalogue/datasets/version.html", overview(version, form), status=422)
    fields = form.cleaned_data
    # The button names the bad rows of the mapping tried before. Another mapping has other bad rows, so people are asked
    # again.
    is_same_mapping = form.mapping(leave_out=False) == replace(
        ColumnMapping.from_dict(version.mapping), leave_out=False
    )
    leave_out = is_same_mapping and may_leave_out(version) and request.POST.get("leave_out") == "1"
    was_queued = actions.request_import(
        version,
        form.mapping(leave_out=leave_out),
        share=fields["share"],
        seed=fields["seed"],
        tokenizer=fields["tokenizer"],
        limit=fields["token_limit"],
    )
    if not was_queued:
        messages.warning(request, "Someone has already mapped this version.")
    return redirect(version)


@operator_required
@require_POST
def leave_out(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    version = version_for(request, dataset_id, number)
    if not actions.leave_bad_rows_out(version):
        messages.error(request, "This version can't be used without its bad rows.")
    return redirect(version)


@operator_required
@require_POST
def map_again(request: HttpRequest, dataset_id: int, number: int) -> HttpResponse:
    """Create a new version of the same file to be mapped differently, since a ready version never changes."""
    old_version = version_for(request, dataset_id, number)
    try:
        return redirect(actions.map_again(person(request), old_version))
    except DatasetError as error:
        messages.error(request, str(error))
        return redirect(old_version)


def _example(version: DatasetVersion, form: MappingForm, index: int) -> dict[str, Any]:
    tokenizer, limit = form.cleaned_data["tokenizer"], form.cleaned_data["token_limit"]
    context: dict[str, Any] = {"version": version, "dataset": version.dataset, "index": 0, "rows": 0, "limit": limit}
    try:
        preview = render_example(version, form.mapping(leave_out=False), tokenizer)
    except DatasetError as error:
        return context | {"problem": str(error)}
    rows, tokenizer_problem = preview["rows"], preview.get("problem") or ""
    if not rows:
        return context | {"problem": tokenizer_problem or "The file has no row to show."}
    index = min(index, len(rows) - 1)
    return context | {
        "examples": [_shown_example(row, limit) for row in rows[index]],
        "warnings": warnings(form.mapping(leave_out=False)),
        "index": index,
        "rows": len(rows),
        "last": len(rows) - 1,
        "tokenizer_problem": tokenizer_problem,
        "tokenizer": Tokenizer.objects.filter(pk=tokenizer).first() if tokenizer else None,
    }


def _shown_example(row: dict[str, Any], limit: int | None) -> dict[str, Any]:
    return row | {
        "over": bool(limit and row["tokens"] and row["tokens"] > limit),
        "pairs": [(name, pretty(value)) for name, value in row["metadata"].items()],
    }
