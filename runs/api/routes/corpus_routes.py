"""Corpora that environments search, and checks of a dataset's reference answers."""

import dataclasses
from functools import partial
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
from controlplane.catalogue.references.models import ReferenceCheck, ReferenceFailure
from controlplane.catalogue.references.showing import check_for, checks_for
from controlplane.catalogue.references.views import CheckForm
from controlplane.platform.accounts.roles import person
from runs.api import form_values, shapes
from runs.api.access import Router, refusing
from runs.api.shapes import ArchiveChange, Cursor, Id, ItemResponse, Limit, PageResponse, RequestBody

router = Router(tags=["corpora and reference checks"])


class NewCorpus(RequestBody):
    dataset: Id
    version: Id = Field(description="The number of the dataset's version.")
    name: str = Field(max_length=NAME_LENGTH, description="An existing corpus of this name gets a new version.")
    text: list[Annotated[str, Field(max_length=200)]] = Field(
        min_length=1, max_length=50, description="The columns to search."
    )
    title: str = Field("", max_length=200, description="The column shown above the text in search results.")
    about: str = Field("", max_length=200, description="A description of the documents, shown to the model.")


class NewText(RequestBody):
    name: str = Field(max_length=NAME_LENGTH, description="An existing corpus of this name gets a new version.")
    text: str = Field(
        max_length=plain_text.MAX_BYTES, description="Paragraphs separated by blank lines. Each one becomes a document."
    )
    markdown: bool = Field(False, description="If true, a paragraph's title is the heading above it.")
    about: str = Field("", max_length=200, description="A description of the documents, shown to the model.")


class NewCheck(RequestBody):
    dataset_version: Id
    reward_version: Id


@router.get("corpora", response=PageResponse)
def corpora(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List all versions of all corpora."""
    return shapes.page(corpora_for(request), _corpus, cursor, limit)


@router.post("corpora", response={201: ItemResponse})
def new_corpus(request: HttpRequest, payload: NewCorpus) -> Any:
    """Create a corpus from columns of a dataset version. It is built in the background."""
    source = version_for(request, payload.dataset, payload.version)
    data = form_values.fill(partial(CorpusForm, source), payload.dict(exclude={"dataset", "version"})).cleaned_data
    with refusing(DatasetError, where="dataset"):
        version = building.create(
            person(request), data["name"], source, text=data["text"], title=data["title"], about=data["about"]
        )
    return Status(201, {"item": _corpus(version)})


@router.post("corpora/text", response={201: ItemResponse})
def text_corpus(request: HttpRequest, payload: NewText) -> Any:
    """Create a corpus from the paragraphs of a text. It is built in the background."""
    data = form_values.fill(NamedForm, payload.dict(include={"name", "about"})).cleaned_data
    source = f"text{plain_text.SUFFIXES[1 if payload.markdown else 0]}"
    with refusing(DatasetError, where="text"):
        lines = plain_text.lines(payload.text.encode(errors="replace"), source)
        version = building.create_from_lines(person(request), data["name"], lines, source=source, about=data["about"])
    return Status(201, {"item": _corpus(version)})


@router.get("corpora/{int:corpus_id}/{int:number}", response=ItemResponse)
def corpus(request: HttpRequest, corpus_id: Id, number: Id) -> Any:
    """Read a version of a corpus."""
    return {"item": _corpus(corpus_for(request, corpus_id, number))}


@router.patch("corpora/{int:corpus_id}/{int:number}", response=ItemResponse)
def change_corpus(request: HttpRequest, corpus_id: Id, number: Id, payload: ArchiveChange) -> Any:
    """Archive or unarchive a version of a corpus. Environments and runs that use it keep working."""
    archiving.set_archived(corpus_for(request, corpus_id, number), payload.archived)
    return {"item": _corpus(corpus_for(request, corpus_id, number))}


@router.delete("corpora/{int:corpus_id}/{int:number}", response={204: None})
def delete_corpus(request: HttpRequest, corpus_id: Id, number: Id) -> Any:
    """Delete a version of a corpus that nothing uses."""
    with refusing(DatasetError, where="corpus"):
        archiving.delete_corpus_version(corpus_for(request, corpus_id, number))
    return Status(204, None)


@router.get("reference-checks", response=PageResponse)
def checks(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List reference checks."""
    return shapes.page(checks_for(request), _check, cursor, limit)


@router.post("reference-checks", response={201: ItemResponse})
def new_check(request: HttpRequest, payload: NewCheck) -> Any:
    """Check a dataset's reference answers.

    Scores each row's reference answer as if the model had written it. If such a check is already waiting or running,
    the response is that check."""
    form = form_values.fill(partial(CheckForm, request), payload.dict())
    version, rewards = form.cleaned_data["dataset_version"], form.cleaned_data["reward_version"]
    with refusing(DatasetError, where="dataset_version"):
        return Status(201, {"item": _check(starting.start(version, rewards, person(request)))})


@router.get("reference-checks/{int:check_id}", response=ItemResponse)
def check(request: HttpRequest, check_id: Id) -> Any:
    """Read a reference check."""
    return {"item": _check(check_for(request, check_id))}


@router.get("reference-checks/{int:check_id}/failures", response=PageResponse)
def failures(request: HttpRequest, check_id: Id, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List the reference answers that failed a check."""
    failing_rows = check_for(request, check_id).failures.all()
    return shapes.page(failing_rows, _failure, cursor, limit)


@router.post("reference-checks/{int:check_id}/stop", response=ItemResponse)
def stop_check(request: HttpRequest, check_id: Id) -> Any:
    """Stop a reference check."""
    starting.stop(check_for(request, check_id))
    return {"item": _check(check_for(request, check_id))}


@router.post("reference-checks/{int:check_id}/leave-out", response={201: ItemResponse})
def leave_out(request: HttpRequest, check_id: Id) -> Any:
    """Create a dataset version without the rows whose reference answers failed the check."""
    with refusing(DatasetError, where="check"):
        version = starting.leave_out(check_for(request, check_id), person(request))
    return Status(201, {"item": shapes.dataset_version(version)})


def _failure(row: ReferenceFailure) -> dict[str, Any]:
    return shapes.columns(row, "row", "component", "score", "message", "excerpt")


def _corpus(version: CorpusVersion) -> dict[str, Any]:
    error = (version.report or {}).get("file_error") or {}
    return {
        "corpus": version.corpus_id,
        "name": version.corpus.name,
        "version": version.number,
        "title": str(version),
        "problem": error.get("message", ""),
        **shapes.columns(version, "status", "source", "about", "documents", "bytes", "sha256"),
        "archived": version.archived_at is not None,
    }


def _check(check: ReferenceCheck) -> dict[str, Any]:
    return {
        "id": check.pk,
        "dataset_version": check.dataset_version_id,
        "reward_version": check.reward_version_id,
        "rows": check.done,
        **shapes.columns(check, "status", "problem", "unanswered", "failed_rows"),
        "verdict": dataclasses.asdict(showing.verdict(check)),
        "components": [
            {
                "name": row.judge.name,
                **shapes.columns(row, "scored", "failed"),
                "untold": row.not_applied,
                "mean": row.mean,
            }
            for row in showing.components(check)
        ],
    }
