"""Pages with the list of items and an item's versions, and actions on a whole item: clone, archive."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.text import slugify
from django.views.decorators.http import require_GET, require_POST, require_safe

from controlplane.catalogue.versioned import saving
from controlplane.catalogue.versioned.differences import Difference
from controlplane.catalogue.versioned.kind import ItemKind
from controlplane.catalogue.versioned.models import Version
from controlplane.catalogue.versioned.queries import item_for, newest_versions, version_for
from controlplane.platform.accounts.models import User
from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.streams import yaml_download
from workers.environments.entry import Entry
from workers.rewards.reward import Reward

NEWEST_RUNS = 20
MAX_INLINE_LENGTH = 60
"""Maximum length of a string shown inline; longer or multi-line strings are shown separately."""


@dataclass(frozen=True)
class PartView:
    spec: Any
    entry: Entry | Reward | None
    """None if the library no longer has it."""
    params: list[tuple[str, Any]]
    """Short parameters that differ from the defaults."""
    texts: list[tuple[str, str]]
    """Long parameters that differ from the defaults: code, schemas, rubrics."""


@require_GET
def items(request: HttpRequest, model: type[Version]) -> HttpResponse:
    """List items that match ?q in their name, description or owner's name; include archived ones with ?archived."""
    item, all_items = model.kind.item, model.items()._default_manager
    versions = newest_versions(model).select_related(f"{item}__owner")
    versions = versions.annotate(run_count=Count(f"{item}__versions__runs"))
    search, archived = request.GET.get("q", "").strip()[:80], bool(request.GET.get("archived"))
    if not archived:
        versions = versions.filter(**{f"{item}__archived_at": None})
    for word in search.split():
        columns = ("name", "description", "owner__username")
        versions = versions.filter(Q(*((f"{item}__{column}__icontains", word) for column in columns), _connector=Q.OR))
    context = {
        "kind": model.kind,
        "versions": versions,
        "any": all_items.exists(),
        "away": 0 if archived else all_items.exclude(archived_at=None).count(),
        "search": search,
        "archived": archived,
    }
    return render(request, f"catalogue/{model._meta.app_label}/list.html", context)


@require_GET
def versions(
    request: HttpRequest,
    item_id: int,
    model: type[Version],
    differences: Callable[[Any, Any], list[Difference]],
) -> HttpResponse:
    """List all versions of an item with their changes, newest first."""
    item = item_for(model.items(), request, item_id)
    rows = model._default_manager.filter(**{model.kind.item: item}).order_by("-number")
    rows = rows.select_related(model.kind.item, "created_by").annotate(run_count=Count("runs"))
    previous = {version.number + 1: version for version in rows}
    entries = [(row, differences(previous[row.number], row) if row.number in previous else []) for row in rows]
    context = {"kind": model.kind, "item": item, "versions": entries}
    return render(request, "catalogue/versioned/versions.html", context)


@require_GET
def version(
    request: HttpRequest, item_id: int, number: int, model: type[Version], page: Callable[[HttpRequest, Any], Any]
) -> HttpResponse:
    response: HttpResponse = page(request, version_for(model, request, item_id, number))
    return response


def version_page(request: HttpRequest, version: Any, **context: Any) -> HttpResponse:
    """Show a version's read-only page, with the runs that use it."""
    context |= {
        "kind": version.kind,
        "item": version.item,
        "version": version,
        "newest": version.item.newest(),
        "parts": [part_view(version.kind, spec) for spec in version.specs],
        "runs": version.runs.order_by("-created_at", "-pk")[:NEWEST_RUNS],
        "run_count": version.runs.count(),
    }
    return render(request, f"catalogue/{version._meta.app_label}/version.html", context)


def part_view(kind: ItemKind, spec: Any) -> PartView:
    entry = kind.library.get(spec.function)
    defaults = entry.defaults() if entry else {}
    params: list[tuple[str, Any]] = []
    long_params: list[tuple[str, str]] = []
    for name, value in spec.params.items():
        if name in defaults and defaults[name] == value:
            continue
        is_long = isinstance(value, str) and (len(value) > MAX_INLINE_LENGTH or "\n" in value)
        (long_params if is_long else params).append((name, value))
    return PartView(spec, entry, params, long_params)


@operator_required
@require_POST
def cloned(
    request: HttpRequest, item_id: int, number: int, model: type[Version], clone: Callable[[Any, User], Version]
) -> HttpResponse:
    item = clone(version_for(model, request, item_id, number), person(request)).item
    messages.success(request, f"Cloned as {item.name}.")
    return redirect(model.kind.route, item.pk)


@operator_required
@require_POST
def archive(request: HttpRequest, item_id: int, model: type[Version], archived: bool) -> HttpResponse:
    item = item_for(model.items(), request, item_id)
    if saving.set_archived(item, archived):
        result = "is no longer offered. Runs that used it are unaffected" if archived else "is offered again"
        messages.success(request, f"{item.name} {result}.")
    return redirect(model.kind.route, item.pk)


@require_safe
def export(
    request: HttpRequest, item_id: int, number: int, model: type[Version], document: Callable[[Any], str]
) -> HttpResponse:
    version = version_for(model, request, item_id, number)
    return yaml_download(document(version), f"{slugify(version.item.name) or slugify(model.kind.name)}-v{number}")
