"""Corpora, in which environments search, and checks of a dataset's reference answers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Status

from controlplane.catalogue.datasets import archiving
from controlplane.catalogue.datasets.corpora import building, plain_text
from controlplane.catalogue.datasets.corpora.forms import CorpusForm, NamedForm
from controlplane.catalogue.datasets.corpora.queries import corpora_for, corpus_for
from controlplane.catalogue.datasets.errors import DatasetError
from controlplane.catalogue.datasets.models import CorpusVersion
from controlplane.catalogue.datasets.pages.forms import NAME_LENGTH
from controlplane.catalogue.datasets.queries import version_for
from controlplane.catalogue.references import showing, starting
from controlplane.catalogue.references.models import ReferenceCheck
from controlplane.catalogue.references.queries import check_for, checks_for
from controlplane.catalogue.references.views import CheckForm
from controlplane.platform.accounts.roles import person
from runs.api import form_values, paging, shapes
from runs.api.access import Problem, Router
from runs.api.shapes import Archived, Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody

router = Router(tags=["corpora and reference checks"])


class NewCorpus(RequestBody):
    dataset: Id
    version: Id = Field(description="The number of the dataset's version.")
    name: str = Field(max_length=NAME_LENGTH, description="One that exists gets a new version.")
    text: list[Annotated[str, Field(max_length=200)]] = Field(
        min_length=1, max_length=50, description="The columns that are searched."
    )
    title: str = Field("", max_length=200, description="The column that stands above the text in an answer.")
    about: str = Field("", max_length=200, description="What the documents are. The model reads it.")


class NewText(RequestBody):
    name: str = Field(max_length=NAME_LENGTH, description="One that exists gets a new version.")
    text: str = Field(max_length=2**23, description="Each paragraph becomes a document; a blank line ends one.")
    markdown: bool = Field(False, description="true: the heading above a paragraph is its title.")
    about: str = Field("", max_length=200, description="What the documents are. The model reads it.")


class NewCheck(RequestBody):
    dataset_version: Id
    reward_version: Id


@router.get("corpora", response=PageResponse)
def corpora(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List corpora. Each version."""
    found, after = paging.page(corpora_for(request), cursor, limit)
    return {"items": [_corpus(each) for each in found], "next_cursor": after}


@router.post("corpora", response={201: ItemResponse})
def new_corpus(request: HttpRequest, payload: NewCorpus) -> Any:
    """Make a corpus. Of columns of a dataset's version, in the background."""
    version = version_for(request, payload.dataset, payload.version)
    values = payload.dict(exclude={"dataset", "version"})
    form = form_values.filled(CorpusForm(version), lambda data: CorpusForm(version, data), values)
    data = form.cleaned_data
    try:
        made = building.create(
            person(request), data["name"], version, text=data["text"], title=data["title"], about=data["about"]
        )
    except DatasetError as error:
        raise Problem(409, str(error), where="dataset") from None
    return Status(201, {"item": _corpus(made)})


@router.post("corpora/text", response={201: ItemResponse})
def text_corpus(request: HttpRequest, payload: NewText) -> Any:
    """Make a corpus of a text. Of its paragraphs, in the background."""
    form = form_values.filled(NamedForm(), NamedForm, payload.dict(include={"name", "about"}))
    source = f"text{plain_text.ENDINGS[1 if payload.markdown else 0]}"
    try:
        lines = plain_text.lines(payload.text.encode(errors="replace"), source)
        made = building.create_from_lines(
            person(request), form.cleaned_data["name"], lines, source=source, about=form.cleaned_data["about"]
        )
    except DatasetError as error:
        raise Problem(409, str(error), where="text") from None
    return Status(201, {"item": _corpus(made)})


@router.get("corpora/{int:corpus_id}/{int:number}", response=ItemResponse)
def corpus(request: HttpRequest, corpus_id: Id, number: Id) -> Any:
    """Read a version of a corpus."""
    return {"item": _corpus(corpus_for(request, corpus_id, number))}


@router.patch("corpora/{int:corpus_id}/{int:number}", response=ItemResponse)
def change_corpus(request: HttpRequest, corpus_id: Id, number: Id, payload: Archived) -> Any:
    """Archive a version of a corpus. What uses it goes on."""
    archiving.set_archived(corpus_for(request, corpus_id, number), payload.archived)
    return {"item": _corpus(corpus_for(request, corpus_id, number))}


@router.delete("corpora/{int:corpus_id}/{int:number}", response={204: None})
def delete_corpus(request: HttpRequest, corpus_id: Id, number: Id) -> Any:
    """Delete a version of a corpus. Only a version that nothing uses."""
    try:
        archiving.delete_corpus_version(corpus_for(request, corpus_id, number))
    except DatasetError as error:
        raise Problem(409, str(error), where="corpus") from None
    return Status(204, None)


@router.get("reference-checks", response=PageResponse)
def checks(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List reference checks."""
    found, after = paging.page(checks_for(request), cursor, limit)
    return {"items": [_check(each) for each in found], "next_cursor": after}


@router.post("reference-checks", response={201: ItemResponse})
def new_check(request: HttpRequest, payload: NewCheck) -> Any:
    """Check reference answers.

    Each row's own answer is scored as if the model had written it; the same check, if it waits or runs already."""
    form = form_values.filled(CheckForm(request), lambda data: CheckForm(request, data), payload.dict())
    version, rewards = form.cleaned_data["dataset_version"], form.cleaned_data["reward_version"]
    try:
        return Status(201, {"item": _check(starting.start(version, rewards, person(request)))})
    except DatasetError as error:
        raise Problem(409, str(error), where="dataset_version") from None


@router.get("reference-checks/{int:check_id}", response=ItemResponse)
def check(request: HttpRequest, check_id: Id) -> Any:
    """Read a reference check."""
    return {"item": _check(check_for(request, check_id))}


@router.get("reference-checks/{int:check_id}/failures", response=PageResponse)
def failures(request: HttpRequest, check_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List answers that fail."""
    found, after = paging.page(check_for(request, check_id).failures.all(), cursor, limit)
    names = ("row", "component", "score", "message", "excerpt")
    return {"items": [{name: getattr(each, name) for name in names} for each in found], "next_cursor": after}


@router.post("reference-checks/{int:check_id}/stop", response=ItemResponse)
def stop_check(request: HttpRequest, check_id: Id) -> Any:
    """Stop a reference check."""
    starting.stop(check_for(request, check_id))
    return {"item": _check(check_for(request, check_id))}


@router.post("reference-checks/{int:check_id}/leave-out", response={201: ItemResponse})
def leave_out(request: HttpRequest, check_id: Id) -> Any:
    """Leave failing rows out of a dataset. A version of the dataset without the rows whose answers fail."""
    try:
        version = starting.leave_out(check_for(request, check_id), person(request))
    except DatasetError as error:
        raise Problem(409, str(error), where="check") from None
    return Status(201, {"item": shapes.dataset_version(version)})


def _corpus(version: CorpusVersion) -> dict[str, Any]:
    error = (version.report or {}).get("file_error") or {}
    return {
        "corpus": version.corpus_id,
        "name": version.corpus.name,
        "version": version.number,
        "title": str(version),
        "status": version.status,
        "problem": error.get("message", ""),
        "source": version.source,
        "about": version.about,
        "documents": version.documents,
        "bytes": version.bytes,
        "sha256": version.sha256,
        "archived": version.archived_at is not None,
    }


def _check(check: ReferenceCheck) -> dict[str, Any]:
    return {
        "id": check.pk,
        "dataset_version": check.dataset_version_id,
        "reward_version": check.reward_version_id,
        "status": check.status,
        "problem": check.problem,
        "rows": check.done,
        "unanswered": check.unanswered,
        "failed_rows": check.failed_rows,
        "verdict": dataclasses.asdict(showing.verdict(check)),
        "components": [
            {
                "name": one.judge.name,
                "scored": one.scored,
                "failed": one.failed,
                "untold": one.not_applied,
                "mean": one.mean,
            }
            for one in showing.components(check)
        ],
    }
