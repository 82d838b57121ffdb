"""The list of datasets: the newest version of each, by name; archived ones behind a switch."""

from __future__ import annotations

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.pages.showing import source
from controlplane.catalogue.datasets.queries import listed
from controlplane.catalogue.datasets.work_queue import progress

A_PAGE = 100


def listing(request: HttpRequest) -> dict[str, Any]:
    """The template's context, for an address such as ?q=words&archived=1&page=2."""
    words = " ".join(request.GET.get("q", "").split())[:200]
    archived = request.GET.get("archived") == "1"
    everything = listed(request)
    archived_versions = [version for version in everything if version.archived_at is not None]
    shelf = everything if archived else [version for version in everything if version.archived_at is None]
    matching = [version for version in shelf if matches(version, words)]
    pages = Paginator(matching, A_PAGE)
    page = pages.get_page(request.GET.get("page"))
    rows = [
        {"version": version, "source": source(version), "progress": progress(version) if at_work(version) else None}
        for version in page.object_list
    ]
    return {
        "rows": rows,
        "page": page,
        "query": words,
        "archived": archived,
        "away": len(archived_versions),
        "any": bool(everything),
        "at_work": any(row["progress"] for row in rows),
    }


def matches(version: DatasetVersion, words: str) -> bool:
    """True if every word is in the name, the source or the owner's name."""
    owner = version.dataset.owner
    text = " ".join((version.dataset.name, source(version)["words"], owner.username if owner else "")).casefold()
    return all(word in text for word in words.casefold().split())


def at_work(version: DatasetVersion) -> bool:
    return version.status in DatasetVersion.AT_WORK
