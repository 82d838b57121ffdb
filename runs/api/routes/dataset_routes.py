"""Datasets: reading, mapping, looking, deriving, archiving, renaming, deleting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, Literal

from django.http import HttpRequest, HttpResponseBase
from ninja import Field, Query, Status

from controlplane.catalogue.datasets import archiving, deriving, exporting, importing, looking
from controlplane.catalogue.datasets import queries as dataset_queries
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages import look_views
from controlplane.catalogue.datasets.pages.filter_forms import MOST_ROWS as MOST_CHOSEN
from controlplane.catalogue.datasets.pages.filter_forms import DeriveForm, FilterForm
from controlplane.catalogue.datasets.pages.forms import NAME_LENGTH, name_problem
from controlplane.catalogue.datasets.pages.mapping_forms import MappingForm
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter
from controlplane.platform.accounts.roles import person
from runs.api import form_values, paging, shapes
from runs.api.access import Problem, Router
from runs.api.routes import trash_routes
from runs.api.shapes import (
    Archived,
    Cursor,
    Id,
    ItemResponse,
    Limit,
    PageResponse,
    Place,
    RequestBody,
    ResponseBody,
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
    name: str = Field("", max_length=NAME_LENGTH, description="Of a new dataset. Empty: the next version of this one.")
    filter: RowChoice | None = None
    rows: list[Annotated[int, Field(ge=0, le=2**62)]] | None = Field(
        None, max_length=MOST_CHOSEN, description="Row numbers, instead of a filter."
    )
    number: Annotated[int, Field(ge=1, le=2**31)] | None = Field(None, description="Only so many of these rows.")
    which: Literal["first", "random"] = "first"
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    tokens: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(None, description="Prompts of at most so many.")
    tokenizer: str = Field("", max_length=200, description="What tokens are counted with.")


class Cancelled(ResponseBody):
    outcome: Literal["deleted", "back", "too late"]
    """`deleted`: nothing of it is left; `back`: it waits for its mapping again; `too late`: the work was over."""


@router.get("datasets", response=PageResponse)
def datasets(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List datasets. Each with its newest version."""
    found, after = paging.page(dataset_queries.datasets_for(request), cursor, limit)
    versions = DatasetVersion.objects.filter(dataset__in=found).select_related("dataset").order_by("number")
    newest = {version.dataset_id: version for version in versions.defer("report")}
    return {
        "items": [shapes.dataset_version(newest[each.pk]) for each in found if each.pk in newest],
        "next_cursor": after,
    }


@router.get("datasets/{int:dataset_id}", response=PageResponse)
def dataset(request: HttpRequest, dataset_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the versions of a dataset."""
    versions = dataset_queries.dataset_for(request, dataset_id).versions.select_related("dataset")
    found, after = paging.page(versions.all(), cursor, limit)
    return {"items": [shapes.dataset_version(each) for each in found], "next_cursor": after}


@router.get("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Read a version of a dataset."""
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.get("datasets/{int:dataset_id}/{int:number}/rows", response=PageResponse)
def rows(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    cursor: Place = "",
    limit: Annotated[int, Query(20, ge=1, le=100, description="Rows of a page.")] = 20,
) -> Any:
    """Read the rows of a version. In their order, long texts cut; only a version that is ready has rows."""
    if cursor and not (cursor.isascii() and cursor.isdecimal()):
        raise Problem(422, "This cursor can't be read.", where="cursor", fix="Send the next_cursor of the page before.")
    one = dataset_queries.version_for(request, dataset_id, number)
    try:
        page = looking.look(one, after=int(cursor or 0), limit=limit)
    except DatasetError as error:
        raise Problem(409, str(error), where="version") from None
    after = page["next"]
    return {"items": page["rows"], "next_cursor": "" if after is None else str(after)}


@router.post("datasets/{int:dataset_id}/{int:number}/mapping", response=ItemResponse)
def mapping(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Map a version's columns.

    Say which column is what, as on the page; the import begins. What isn't sent is as the page proposes it."""
    one, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    if one.status != DatasetVersion.NEEDS_MAPPING:
        raise Problem(409, f"{one} doesn't wait for a mapping: it is {one.status}.", where="version")
    first = MappingForm(one, initial=MappingForm.initial_of(one), user=user)
    form = form_values.filled(first, lambda data: MappingForm(one, data, user=user), payload.values, where="values")
    fields = form.cleaned_data
    importing.request_import(
        one,
        form.mapping(leave_out=False),
        share=fields["share"],
        seed=fields["seed"],
        tokenizer=fields["tokenizer"],
        limit=fields["token_limit"],
    )
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.post("datasets/{int:dataset_id}/{int:number}/preview", response=PageResponse)
def preview(request: HttpRequest, dataset_id: Id, number: Id, payload: Mapping) -> Any:
    """Preview a mapping on real rows.

    The file's first rows as this mapping makes them; several for a row with several turns. Nothing is imported."""
    one, user = dataset_queries.version_for(request, dataset_id, number), person(request)
    first = MappingForm(one, user=user)
    form = form_values.filled(
        first, lambda data: MappingForm(one, data, user=user, preview=True), payload.values, where="values"
    )
    with _conflict():
        found = looking.render_example(one, form.mapping(leave_out=False), form.cleaned_data["tokenizer"])
    return {"items": [{"rows": made} for made in found["rows"]], "next_cursor": ""}


@router.patch("datasets/{int:dataset_id}/{int:number}", response=ItemResponse)
def change_version(request: HttpRequest, dataset_id: Id, number: Id, payload: Archived) -> Any:
    """Archive a version of a dataset."""
    one = dataset_queries.version_for(request, dataset_id, number)
    archiving.set_archived(one, payload.archived)
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.delete("datasets/{int:dataset_id}/{int:number}", response={204: None})
def delete_version(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Delete a version of a dataset.

    Only a version that no run was trained on. The only version of a dataset takes the dataset with it, which can be
    restored for a while; others are gone at once."""
    version = dataset_queries.version_for(request, dataset_id, number)
    if archiving.is_the_whole_dataset(version):
        return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))
    with _conflict("Archive it instead."):
        archiving.delete_version(version)
    return Status(204, None)


@router.post("datasets/{int:dataset_id}/{int:number}/leave-out", response=ItemResponse)
def leave_out(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Import a version without its bad rows."""
    one = dataset_queries.version_for(request, dataset_id, number)
    if not importing.leave_bad_rows_out(one):
        raise Problem(409, "This version can't be used without its bad rows.", where="version")
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.post("datasets/{int:dataset_id}/{int:number}/again", response={201: ItemResponse})
def map_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Map a version's file again. As a new version, which waits for its mapping: one that is ready never changes."""
    one = dataset_queries.version_for(request, dataset_id, number)
    with _conflict():
        return Status(201, {"item": shapes.dataset_version(importing.map_again(person(request), one))})


@router.post("datasets/{int:dataset_id}/{int:number}/derive", response={201: ItemResponse})
def derive(request: HttpRequest, dataset_id: Id, number: Id, payload: Derive) -> Any:
    """Derive a version from some of its rows.

    As the next version, or as a new dataset: rows by a filter or by number."""
    one, values = dataset_queries.version_for(request, dataset_id, number), payload.dict(exclude_none=True)
    chosen, rows = values.pop("filter", {}), values.pop("rows", None)
    if rows is not None:
        values["rows"] = " ".join(map(str, rows))
    if problem := name_problem(payload.name) if payload.name else "":
        raise Problem(422, problem, where="name")
    form = form_values.filled(DeriveForm(one), lambda data: DeriveForm(one, data), values)
    filters = form_values.filled(FilterForm(one), lambda data: FilterForm(one, data), chosen, where="filter")
    with _conflict():
        derived = deriving.derive(
            person(request),
            one,
            look_views.filter_of(form, filters),
            name=payload.name,
            tokenizer=look_views.tokenizer_of(form),
        )
    return Status(201, {"item": shapes.dataset_version(derived)})


@router.post("datasets/{int:dataset_id}/{int:number}/cancel", response=Cancelled)
def cancel(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Cancel work on a version. An import goes back to its mapping; a fetch, a check or a derivation leaves nothing."""
    outcome = importing.cancel(dataset_queries.version_for(request, dataset_id, number))
    return {"outcome": outcome or "too late"}


@router.post("datasets/{int:dataset_id}/{int:number}/try-again", response=ItemResponse)
def try_again(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """Try failed work on a version again. After a failure of the server, its disk or the hub."""
    one = dataset_queries.version_for(request, dataset_id, number)
    if not importing.try_again(one):
        what = "There is nothing to try again: the file itself is the problem, or the step has finished."
        raise Problem(409, what, where="version")
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id, number))}


@router.get("datasets/{int:dataset_id}/{int:number}/problems", response=PageResponse)
def problems(request: HttpRequest, dataset_id: Id, number: Id) -> Any:
    """List what is wrong with a version's rows. Those that the report keeps, of the file's check and of the import."""
    report = dataset_queries.version_for(request, dataset_id, number).report or {}
    kept = [*(report.get("problems") or ()), *((report.get("mapped") or {}).get("problems") or ())]
    return {"items": kept, "next_cursor": ""}


@router.get("datasets/{int:dataset_id}/{int:number}/export")
def export(
    request: HttpRequest,
    dataset_id: Id,
    number: Id,
    format: Annotated[Literal["jsonl", "parquet"], Query(description="The kind of file.")] = "jsonl",  # noqa: A002
) -> HttpResponseBase:
    """Download the rows of a version."""
    one = dataset_queries.version_for(request, dataset_id, number)
    with _conflict():
        return exporting.export(request, one, format, RowFilter())


@router.delete("datasets/{int:dataset_id}", response={204: None})
def delete_dataset(request: HttpRequest, dataset_id: Id) -> Any:
    """Delete a dataset with all versions.

    Only a dataset that no run was trained on. It can be restored for a while: see /deleted."""
    dataset_queries.dataset_for(request, dataset_id)
    return trash_routes.mark(KINDS["dataset"], dataset_id, person(request))


@router.patch("datasets/{int:dataset_id}", response=ItemResponse)
def change_dataset(request: HttpRequest, dataset_id: Id, payload: trash_routes.Name) -> Any:
    """Rename a dataset. Runs and documents find its rows by their checksum."""
    dataset = dataset_queries.dataset_for(request, dataset_id)
    trash_routes.rename(KINDS["dataset"], dataset, payload.name, person(request))
    return {"item": shapes.dataset_version(dataset_queries.version_for(request, dataset_id))}


@contextmanager
def _conflict(fix: str = "") -> Iterator[None]:
    try:
        yield
    except DatasetError as error:
        raise Problem(409, str(error), where="version", fix=fix) from None
