"""Finding things by words, as the command palette does."""

from __future__ import annotations

from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query

from runs.api.access import Router
from runs.api.shapes import ResponseBody
from runs.pages.search import finding

router = Router(tags=["search"])


class SearchResult(ResponseBody):
    kind: str
    """Run, Dataset, Reward config, Environment, Model, Hardware profile, Host, Corpus, User, Page or Action."""
    title: str
    """Its name, or what the page or action is called."""
    about: str
    """What tells it from others of this name. Often empty."""
    page: str
    """The path of its page."""


class Hits(ResponseBody):
    items: list[SearchResult]
    """By kind, of each the best match first; of runs the newest."""


@router.get("search", response=Hits)
def search(
    request: HttpRequest,
    q: Annotated[str, Query("", max_length=finding.LONGEST, description="Words, an id or a name.")] = "",
) -> Any:
    """Find runs, datasets, models and pages.

    Of each kind the few that match every word best; without words, nothing. Runs: by id or name, the newest."""
    found = [hit for hit in finding.search(request, q) if hit.address]
    return {"items": [{"kind": h.kind, "title": h.title, "about": h.about, "page": h.address} for h in found]}
