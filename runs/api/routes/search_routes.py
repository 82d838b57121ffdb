"""Search, as in the command palette."""

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
    """The name of the object, page or action."""
    about: str
    """Details that distinguish it from others with the same name. Often empty."""
    page: str
    """The path of its page."""


class Hits(ResponseBody):
    items: list[SearchResult]
    """Results grouped by kind, best match first; runs newest first."""


@router.get("search", response=Hits)
def search(
    request: HttpRequest,
    q: Annotated[str, Query("", max_length=finding.MAX_QUERY_CHARS, description="Words, an id or a name.")] = "",
) -> Any:
    """Find runs, datasets, models and pages that match all words.

    Returns the best few matches of each kind, and the newest runs whose id or name matches. Without words, returns
    nothing."""
    hits = [hit for hit in finding.search(request, q) if hit.address]
    return {"items": [{"kind": hit.kind, "title": hit.title, "about": hit.about, "page": hit.address} for hit in hits]}
