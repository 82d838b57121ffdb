"""The routes of a kind's list, of an item's versions, and of the actions on an item."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.urls import URLPattern, path

from controlplane.catalogue.versioned import views
from controlplane.catalogue.versioned.models import Version


def routes(
    model: type[Version],
    *,
    differences: Callable[..., Any],
    clone: Callable[..., Any],
    export: Callable[..., Any],
) -> list[URLPattern]:
    """The functions: changes between two versions; a clone of a version for an owner; a version as a document."""
    of, item, version = {"model": model}, model.kind.route, model.kind.version_route
    at = "<int:item_id>/v<int:number>/"
    return [
        path("", views.items, of, name=f"{item}s"),
        path("<int:item_id>/versions/", views.versions, of | {"differences": differences}, name=f"{version}s"),
        path(f"{at}yaml/", views.export, of | {"document": export}, name=f"{version}_export"),
        path(f"{at}duplicate/", views.cloned, of | {"clone": clone}, name=f"{version}_duplicate"),
        path("<int:item_id>/archive/", views.archive, of, name=f"{item}_archive"),
        path("<int:item_id>/unarchive/", views.unarchive, of, name=f"{item}_unarchive"),
    ]
