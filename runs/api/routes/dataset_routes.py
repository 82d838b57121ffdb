"""Datasets: list, read, map, derive, archive, rename, delete."""

from functools import partial
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponseBase
from ninja import Field, Query, Status

from controlplane.catalogue.datasets import (
    actions,
    archiving,
    browsing,
    deriving,
    exporting,
)
from controlplane.catalogue.datasets import (
    queries as dataset_queries,
)
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages import browse_views
from controlplane.catalogue.datasets.pages.filter_forms import DeriveForm, FilterForm
from controlplane.catalogue.datasets.pages.forms import NAME_LENGTH, name_problem
from controlplane.catalogue.datasets.pages.mapping_forms import MappingForm
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.catalogue.datasets.reader.versions.row_numbers import MAX_ROWS as MAX_CHOSEN
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, refusing
from runs.api.routes import trash_routes
from runs.api.shapes import (
    ArchiveChange,
    Cursor,
    Id,
    ItemResponse,
    Limit,
    PageResponse,
    RequestBody,
    ResponseBody,
    RowCursor,
    Value,
)
from runs.engine.trash.kinds import KINDS

router = Router(tags=["datasets"])


class Mapping(RequestBody):
    values: dict[str, Value] = Field({}, description="Fields of the mapping form: prompt, answer, test_cases, share, …")


class RowChoice(RequestBody):
    text: str = Field("", max_length=400)
    difficulty: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)
    tags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)
    at_least: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        None, description="Minimum number of characters in the prompt."
    )
    at_most: Annotated[int, Field(ge=0, le=2**31)] | None = Field(
        None, description="Maximum number of characters in the prompt."
    )
    part: Literal["", "train", "validation"] = ""


class Derive(RequestBody):
    name: str = Field(
        "",
        max_length=NAME_LENGTH,
        description="The name of a new dataset. If empty, the result is the next version of this dataset.",
    )
    filter: RowChoice | None = None
    rows: list[Annotated[int, Field(ge=0, le=2**62)]] | None = Field(
        None, max_length=MAX_CHOSEN, description="Row numbers; replaces the filter."
    )
    number: Annotated[int, Field(ge=1, le=2**31)] | None = Field(None, description="Maximum number of rows to keep.")
    which: Literal["first", "random"] = "first"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None, description="Maximum number of tokens in a prompt."
    )
    tokenizer: str = Field("", max_length=200, description="The tokenizer used to count the tokens.")


class CancelResponse(ResponseBody):
    outcome: Literal["deleted", "back", "too late"]
    """`deleted` if the version was deleted, `back` if it is waiting for its mapping again, or `too late` if the work
    had already ended."""


@router.get("datasets", response=PageResponse)
def datasets(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List datasets, each with its newest version."""
    rows, next_cursor = shapes.rows_after(dataset_queries.datasets_for(request), cursor, limit)
    versions = DatasetVersion.objects.filter(dataset__in=rows).select_related("dataset").order_by("number")
    newest_versions = {version.dataset_id: version for version in versions.defer("report")}
    return {
        "items": [shapes.dataset_version(newest_versions[row.pk]) for row in rows if row.pk in newest_versions],
        "next_cursor": next_cursor,
    }


@router.get("datasets/{int:dataset_id}", response=PageResponse)
def dataset(request: HttpRequest, dataset_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the versions of a dataset."""
    versions = dataset_queries.dataset_for(request, dataset_id).versions.select_related("dataset")
    return shapes.page(versions.all(), shapes.dataset_version, cursor, limit)


@router.get("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Read a version of a dataset."""
    return _response(request, dataset_id, number)


@router.get("datasets/{int:dataset_id}/{int:number}/rows", response=PageResponse)
def rows(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    cursor: RowCursor = "",
    limit: Annotated[int, Query(20, ge=1, le=100, description="Maximum number of rows per page.")] = 20,
) -> Any:
    """Read the rows of a ready version in order, with long texts truncated."""
    after_row = shapes.parse_row_cursor(cursor) or 0
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        page = browsing.page(version, start=after_row, limit=limit)
    return {"items": page["rows"], "next_cursor": "" if page["next"] is None else str(page["next"])}


@router.post("datasets/{int:dataset_id}/{int:number}/mapping", response=ItemResponse)
def mapping(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Map a version's columns and start the import.

    Fields that aren't sent have the values that the page proposes."""
    version, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    if version.status != DatasetVersion.NEEDS_MAPPING:
        raise Problem(409, f"{version} is not waiting for a mapping: it is {version.status}.", where="version")
    base_form = MappingForm(version, initial=MappingForm.initial_of(version), user=user)
    form = form_values.fill(partial(MappingForm, version, user=user), payload.values, where="values", first=base_form)
    fields = form.cleaned_data
    actions.request_import(
        version,
        form.mapping(leave_out=False),
        share=fields["share"],
        seed=fields["seed"],
        tokenizer=fields["tokenizer"],
        limit=fields["token_limit"],
    )
    return _response(request, dataset_id, number)


@router.post("datasets/{int:dataset_id}/{int:number}/preview", response=PageResponse)
def preview(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Preview a mapping on the file's first rows without importing anything.

    A row with several turns can yield several rows."""
    version, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    form_class = partial(MappingForm, version, user=user, preview=True)
    base_form = MappingForm(version, initial=MappingForm.initial_of(version), user=user)
    form = form_values.fill(form_class, payload.values, where="values", first=base_form)
    with refusing(DatasetError, where="version"):
        example = browsing.render_example(version, form.mapping(leave_out=False), form.cleaned_data["tokenizer"])
    return {"items": [{"rows": mapped} for mapped in example["rows"]], "next_cursor": ""}


@router.patch("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def change_version(request: HttpRequest, dataset_id: Id, number: Id, payload: ArchiveChange) -> Any:
    """Archive or unarchive a version of a dataset."""
    archiving.set_archived(dataset_queries.version_for(request, dataset_id, number), payload.archived)
    return _response(request, dataset_id, number)


@router.delete("datasets/{int:dataset_id}/{int:number}", response={204: None})
def delete_version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Delete a version of a dataset on which no run was trained.

    Deleting the only version deletes the dataset, which can be restored for a while. Other versions are deleted
    permanently."""
    version = dataset_queries.version_for(request, dataset_id, number)
    if archiving.is_the_whole_dataset(version):
        return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))
    with refusing(DatasetError, where="version", fix="Archive it instead."):
        archiving.delete_version(version)
    return Status(204, None)


@router.post("datasets/{int:dataset_id}/{int:number}/leave-out", response=ItemResponse)
def leave_out(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Import a version without its invalid rows."""
    if not actions.leave_bad_rows_out(dataset_queries.version_for(request, dataset_id, number)):
        raise Problem(409, "This version can't be imported without its invalid rows.", where="version")
    return _response(request, dataset_id, number)


@router.post("datasets/{int:dataset_id}/{int:number}/again", response={201: ItemResponse})
def map_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Map a version's file again. This creates a version that waits for its mapping; ready versions never change."""
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        return Status(201, {"item": shapes.dataset_version(actions.map_again(person(request), version))})


@router.post("datasets/{int:dataset_id}/{int:number}/derive", response={201: ItemResponse})
def derive(request: HttpRequest, dataset_id: Id, number: Id, payload: Derive) -> Any:
    """Derive a version from some of a version's rows.

    Select rows by a filter or by number. The result is the next version of this dataset, or a new dataset."""
    version, values = dataset_queries.version_for(request, dataset_id, number), payload.dict(exclude_none=True)
    filter_values, rows = values.pop("filter", {}), values.pop("rows", None)
    if rows is not None:
        values["rows"] = " ".join(map(str, rows))
    if problem := name_problem(payload.name) if payload.name else "":
        raise Problem(422, problem, where="name")
    form = form_values.fill(partial(DeriveForm, version), values)
    filters = form_values.fill(partial(FilterForm, version), filter_values, where="filter")
    with refusing(DatasetError, where="version"):
        derived_version = deriving.derive(
            person(request),
            version,
            browse_views.filter_of(form, filters),
            name=payload.name,
            tokenizer=browse_views.tokenizer_of(form),
        )
    return Status(201, {"item": shapes.dataset_version(derived_version)})


@router.post("datasets/{int:dataset_id}/{int:number}/cancel", response=CancelResponse)
def cancel(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Cancel work on a version. If an import is cancelled, the version waits for its mapping again; otherwise it is
    deleted."""
    outcome = actions.cancel(dataset_queries.version_for(request, dataset_id, number))
    return {"outcome": outcome or "too late"}


@router.post("datasets/{int:dataset_id}/{int:number}/try-again", response=ItemResponse)
def try_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Retry a step of a version's import that failed because of the server, its disk or the hub."""
    if not actions.try_again(dataset_queries.version_for(request, dataset_id, number)):
        reason = "There is nothing to retry: the file itself is the problem, or the step has finished."
        raise Problem(409, reason, where="version")
    return _response(request, dataset_id, number)


@router.get("datasets/{int:dataset_id}/{int:number}/problems", response=PageResponse)
def problems(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """List the problems of a version's rows that the file check and the import reported."""
    report = dataset_queries.version_for(request, dataset_id, number).report or {}
    items = [*(report.get("problems") or ()), *((report.get("mapped") or {}).get("problems") or ())]
    return {"items": items, "next_cursor": ""}


@router.get("datasets/{int:dataset_id}/{int:number}/export")
def export(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    format: Annotated[Literal["jsonl", "parquet"], Query(description="The file format.")] = "jsonl",  # noqa: A002
) -> HttpResponseBase:
    """Download the rows of a version."""
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        return exporting.export(request, version, format, RowFilter())


@router.delete("datasets/{int:dataset_id}", response={204: None})
def delete_dataset(request: HttpRequest, dataset_id: Id) -> Any:
    """Delete a dataset on which no run was trained, with its versions. It can be restored for a while: see /deleted."""
    dataset_queries.dataset_for(request, dataset_id)
    return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))


@router.patch("datasets/{int:dataset_id}", response=ItemResponse)
def change_dataset(request: HttpRequest, dataset_id: Id, payload: trash_routes.Name) -> Any:
    """Rename a dataset. Runs and documents are not affected, because they refer to its rows by checksum."""
    dataset = dataset_queries.dataset_for(request, dataset_id)
    trash_routes.rename(KINDS["dataset"], dataset, payload.name, person(request))
    return _response(request, dataset_id)


def _response(request: HttpRequest, dataset_id: int, number: int | None = None) -> dict[str, Any]:
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}
