"""Datasets: reading, mapping, browsing, deriving, archiving, renaming, deleting."""

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
from controlplane.catalogue.datasets.pages.filter_forms import MAX_ROWS as MAX_CHOSEN
from controlplane.catalogue.datasets.pages.filter_forms import DeriveForm, FilterForm
from controlplane.catalogue.datasets.pages.forms import NAME_LENGTH, name_problem
from controlplane.catalogue.datasets.pages.mapping_forms import MappingForm
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Problem, Router, refusing
from runs.api.routes import trash_routes
from runs.api.shapes import (
    Archived,
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
    values: dict[str, Value] = Field({}, description="Fields of the mapping: prompt, answer, test_cases, share, …")


class RowChoice(RequestBody):
    text: str = Field("", max_length=400)
    difficulty: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)
    tags: list[Annotated[str, Field(max_length=200)]] = Field([], max_length=100)
    at_least: Annotated[int, Field(ge=0, le=2**31)] | None = Field(None, description="Characters of the prompt.")
    at_most: Annotated[int, Field(ge=0, le=2**31)] | None = None
    part: Literal["", "train", "validation"] = ""


class Derive(RequestBody):
    name: str = Field(
        "", max_length=NAME_LENGTH, description="The name of a new dataset. Empty: the next version of this dataset."
    )
    filter: RowChoice | None = None
    rows: list[Annotated[int, Field(ge=0, le=2**62)]] | None = Field(
        None, max_length=MAX_CHOSEN, description="Row numbers, instead of a filter."
    )
    number: Annotated[int, Field(ge=1, le=2**31)] | None = Field(None, description="At most this many of these rows.")
    which: Literal["first", "random"] = "first"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(None, description="The most tokens of a prompt.")
    tokenizer: str = Field("", max_length=200, description="The tokenizer that counts them.")


class Cancelled(ResponseBody):
    outcome: Literal["deleted", "back", "too late"]
    """`deleted`: the version is gone; `back`: it waits for its mapping again; `too late`: the work had ended."""


@router.get("datasets", response=PageResponse)
def datasets(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List datasets. Each with its newest version."""
    rows, after = shapes.rows_after(dataset_queries.datasets_for(request), cursor, limit)
    versions = DatasetVersion.objects.filter(dataset__in=rows).select_related("dataset").order_by("number")
    newest = {version.dataset_id: version for version in versions.defer("report")}
    return {
        "items": [shapes.dataset_version(newest[row.pk]) for row in rows if row.pk in newest],
        "next_cursor": after,
    }


@router.get("datasets/{int:dataset_id}", response=PageResponse)
def dataset(request: HttpRequest, dataset_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the versions of a dataset."""
    versions = dataset_queries.dataset_for(request, dataset_id).versions.select_related("dataset")
    return shapes.page(versions.all(), shapes.dataset_version, cursor, limit)


@router.get("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Read a version of a dataset."""
    return _answer(request, dataset_id, number)


@router.get("datasets/{int:dataset_id}/{int:number}/rows", response=PageResponse)
def rows(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    cursor: RowCursor = "",
    limit: Annotated[int, Query(20, ge=1, le=100, description="Rows of a page.")] = 20,
) -> Any:
    """Read the rows of a version. In order, with long texts cut; only a version that is ready has rows."""
    after = shapes.number_of(cursor) or 0
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        page = browsing.page(version, after=after, limit=limit)
    return {"items": page["rows"], "next_cursor": "" if page["next"] is None else str(page["next"])}


@router.post("datasets/{int:dataset_id}/{int:number}/mapping", response=ItemResponse)
def mapping(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Map a version's columns.

    Assigns the columns, as on the page, and starts the import. Fields that aren't sent are as the page proposes."""
    version, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    if version.status != DatasetVersion.NEEDS_MAPPING:
        raise Problem(409, f"{version} doesn't wait for a mapping: it is {version.status}.", where="version")
    first = MappingForm(version, initial=MappingForm.initial_of(version), user=user)
    form = form_values.filled(partial(MappingForm, version, user=user), payload.values, where="values", first=first)
    fields = form.cleaned_data
    actions.request_import(
        version,
        form.mapping(leave_out=False),
        share=fields["share"],
        seed=fields["seed"],
        tokenizer=fields["tokenizer"],
        limit=fields["token_limit"],
    )
    return _answer(request, dataset_id, number)


@router.post("datasets/{int:dataset_id}/{int:number}/preview", response=PageResponse)
def preview(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Preview a mapping on real rows.

    Shows what this mapping makes of the file's first rows: several for a row with several turns. Imports nothing."""
    version, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    form_class = partial(MappingForm, version, user=user, preview=True)
    form = form_values.filled(form_class, payload.values, where="values", first=MappingForm(version, user=user))
    with refusing(DatasetError, where="version"):
        example = browsing.render_example(version, form.mapping(leave_out=False), form.cleaned_data["tokenizer"])
    return {"items": [{"rows": mapped} for mapped in example["rows"]], "next_cursor": ""}


@router.patch("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def change_version(request: HttpRequest, dataset_id: Id, number: Id, payload: Archived) -> Any:
    """Archive a version of a dataset."""
    archiving.set_archived(dataset_queries.version_for(request, dataset_id, number), payload.archived)
    return _answer(request, dataset_id, number)


@router.delete("datasets/{int:dataset_id}/{int:number}", response={204: None})
def delete_version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Delete a version of a dataset.

    Only if no run was trained on it. Deleting the only version deletes the dataset, which can be restored for a while;
    other versions are gone at once."""
    version = dataset_queries.version_for(request, dataset_id, number)
    if archiving.is_the_whole_dataset(version):
        return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))
    with refusing(DatasetError, where="version", fix="Archive it instead."):
        archiving.delete_version(version)
    return Status(204, None)


@router.post("datasets/{int:dataset_id}/{int:number}/leave-out", response=ItemResponse)
def leave_out(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Import a version without its bad rows."""
    if not actions.leave_bad_rows_out(dataset_queries.version_for(request, dataset_id, number)):
        raise Problem(409, "This version can't be used without its bad rows.", where="version")
    return _answer(request, dataset_id, number)


@router.post("datasets/{int:dataset_id}/{int:number}/again", response={201: ItemResponse})
def map_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Map a version's file again. Makes a new version, which waits for its mapping: ready versions never change."""
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        return Status(201, {"item": shapes.dataset_version(actions.map_again(person(request), version))})


@router.post("datasets/{int:dataset_id}/{int:number}/derive", response={201: ItemResponse})
def derive(request: HttpRequest, dataset_id: Id, number: Id, payload: Derive) -> Any:
    """Derive a version from some of its rows.

    Rows are chosen by a filter or by number. The result is the next version, or a new dataset."""
    version, values = dataset_queries.version_for(request, dataset_id, number), payload.dict(exclude_none=True)
    chosen, rows = values.pop("filter", {}), values.pop("rows", None)
    if rows is not None:
        values["rows"] = " ".join(map(str, rows))
    if problem := name_problem(payload.name) if payload.name else "":
        raise Problem(422, problem, where="name")
    form = form_values.filled(partial(DeriveForm, version), values)
    filters = form_values.filled(partial(FilterForm, version), chosen, where="filter")
    with refusing(DatasetError, where="version"):
        derived = deriving.derive(
            person(request),
            version,
            browse_views.filter_of(form, filters),
            name=payload.name,
            tokenizer=browse_views.tokenizer_of(form),
        )
    return Status(201, {"item": shapes.dataset_version(derived)})


@router.post("datasets/{int:dataset_id}/{int:number}/cancel", response=Cancelled)
def cancel(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Cancel work on a version. After an import it waits for its mapping again; otherwise it is deleted."""
    outcome = actions.cancel(dataset_queries.version_for(request, dataset_id, number))
    return {"outcome": outcome or "too late"}


@router.post("datasets/{int:dataset_id}/{int:number}/try-again", response=ItemResponse)
def try_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Retry failed work on a version. Retries a step that failed because of the server, its disk or the hub."""
    if not actions.try_again(dataset_queries.version_for(request, dataset_id, number)):
        reason = "There is nothing to try again: the file itself is the problem, or the step has finished."
        raise Problem(409, reason, where="version")
    return _answer(request, dataset_id, number)


@router.get("datasets/{int:dataset_id}/{int:number}/problems", response=PageResponse)
def problems(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """List problems of a version's rows. Those in its report, from the file's check and the import."""
    report = dataset_queries.version_for(request, dataset_id, number).report or {}
    items = [*(report.get("problems") or ()), *((report.get("mapped") or {}).get("problems") or ())]
    return {"items": items, "next_cursor": ""}


@router.get("datasets/{int:dataset_id}/{int:number}/export")
def export(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    format: Annotated[Literal["jsonl", "parquet"], Query(description="The kind of file.")] = "jsonl",  # noqa: A002
) -> HttpResponseBase:
    """Download the rows of a version."""
    version = dataset_queries.version_for(request, dataset_id, number)
    with refusing(DatasetError, where="version"):
        return exporting.export(request, version, format, RowFilter())


@router.delete("datasets/{int:dataset_id}", response={204: None})
def delete_dataset(request: HttpRequest, dataset_id: Id) -> Any:
    """Delete a dataset with all versions.

    Only if no run was trained on it. It can be restored for a while: see /deleted."""
    dataset_queries.dataset_for(request, dataset_id)
    return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))


@router.patch("datasets/{int:dataset_id}", response=ItemResponse)
def change_dataset(request: HttpRequest, dataset_id: Id, payload: trash_routes.Name) -> Any:
    """Rename a dataset. Runs and documents refer to its rows by checksum."""
    dataset = dataset_queries.dataset_for(request, dataset_id)
    trash_routes.rename(KINDS["dataset"], dataset, payload.name, person(request))
    return _answer(request, dataset_id)


def _answer(request: HttpRequest, dataset_id: int, number: int | None = None) -> dict[str, Any]:
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}
