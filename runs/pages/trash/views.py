"""The deletion page, which explains the consequences, the page of recently deleted objects, and renaming in place."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.templatetags.figures import clock
from runs.engine import disk
from runs.engine.models import Run
from runs.engine.sentences import counted
from runs.engine.trash import deleting, naming, purging
from runs.engine.trash.kinds import KINDS, DeletableKind

MAX_LISTED = 200


@require_safe
def deleted(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    # (kind, object, what its purge is waiting for, or None if the object can still be restored)
    rows = [
        (kind, row, None if row.can_be_restored(now) else purging.waits_for(row, now))
        for kind, row in deleting.deleted_rows(MAX_LISTED)
    ]
    return render(request, "pages/trash/deleted.html", {"rows": rows, "days": settings.DELETED_KEPT_DAYS})


@require_http_methods(["GET", "HEAD", "POST"])
@operator_required
def delete(request: HttpRequest, kind_slug: str) -> HttpResponseBase:
    """Delete the objects with the given ids (`id`), after a page that explains the consequences."""
    kind = _kind(kind_slug)
    fields = request.POST if request.method == "POST" else request.GET
    rows = _rows(kind, fields.getlist("id"))
    if request.method == "POST":
        return _delete(request, kind, rows)
    if not rows:
        messages.info(request, f"There is no {kind.label} left to delete.")
        return redirect("deleted")
    until = timezone.now() + timedelta(days=settings.DELETED_KEPT_DAYS)
    deletable, undeletable = [], []
    for row in rows:
        obstacles = list(kind.obstacles(row))
        pending = {"row": row, "address": kind.address(row), "obstacles": obstacles}
        if obstacles:
            undeletable.append(pending)
        else:
            deletable.append({**pending, "consequences": list(kind.consequences(row))})
    context = {"kind": kind, "able": deletable, "unable": undeletable, "until": until, "section": kind.listed}
    return render(request, "pages/trash/delete.html", context | _deletion_texts(kind, deletable, undeletable))


def _deletion_texts(
    kind: DeletableKind, deletable: list[dict[str, Any]], undeletable: list[dict[str, Any]]
) -> dict[str, str]:
    list_address = reverse(kind.listed)
    plural_title = f"{len(deletable)} {kind.title.lower()}"
    only_item = next(iter(deletable or undeletable)) if len(deletable or undeletable) == 1 else None
    freed_parts: Iterable[str] = ()
    if kind.model is Run and len(deletable) > 1:
        freed_parts = disk.sum_of([disk.of_run(pending["row"]) for pending in deletable]).parts
    return {
        "heading": f"Delete {only_item['row'].name if only_item else plural_title}?"
        if deletable
        else "This can’t be deleted now",
        "act": f"Delete {kind.label if only_item else plural_title}",
        "cancel": only_item["address"] if only_item else list_address,
        "back": f"{list_address}#profiles" if kind.slug == "profile" else list_address,
        "frees": ", ".join(freed_parts),
    }


def _delete(request: HttpRequest, kind: DeletableKind, rows: list[Any]) -> HttpResponseBase:
    deleted_rows = []
    for row in rows:
        try:
            if deleted_row := deleting.delete(kind, row.pk, person(request)):
                deleted_rows.append(deleted_row)
        except deleting.NotDeletable as error:
            messages.warning(request, str(error))
    if deleted_rows:
        is_single = len(deleted_rows) == 1
        name = deleted_rows[0].name if is_single else counted(len(deleted_rows), kind.label)
        link = format_html('<a href="{}">Recently deleted</a>', reverse("deleted"))
        until, pronoun = clock(deleted_rows[0].purge_at, "day"), "it" if is_single else "they"
        notice = format_html("Deleted {}. Until {}, {} can be restored under {}.", name, until, pronoun, link)
        messages.success(request, notice)
    return redirect(kind.listed) if deleted_rows or len(rows) != 1 else redirect(kind.address(rows[0]))


@require_POST
@operator_required
def restore(request: HttpRequest, kind_slug: str, key: str) -> HttpResponseBase:
    kind = _kind(kind_slug)
    try:
        row, note = deleting.restore(kind, kind.key(key), person(request))
    except deleting.NotRestorable as error:
        messages.error(request, str(error))
        return redirect("deleted")
    messages.success(request, f"{row.name} was restored. {note}".strip())
    return redirect(kind.address(row))


@require_POST
@operator_required
def purge(request: HttpRequest, kind_slug: str, key: str) -> HttpResponseBase:
    kind = _kind(kind_slug)
    if deleting.purge_now(kind, kind.key(key)):
        messages.success(request, "It will be permanently deleted within two minutes, if its hosts are reachable.")
    else:
        messages.info(request, f"This {kind.label} no longer exists, or has been restored.")
    return redirect("deleted")


@require_http_methods(["GET", "HEAD", "POST"])
def name(request: HttpRequest, kind_slug: str, key: str) -> HttpResponseBase:
    """Render a page's title, or with ?edit the form for renaming; POST renames the object."""
    kind = _kind(kind_slug)
    row = kind.model.objects.filter(pk=kind.key(key)).first()
    if row is None:
        raise Http404
    context = {"slug": kind_slug, "row": row, "typed": row.name, "longest": kind.longest_name}
    if request.method == "POST":
        return _rename(request, kind, context)
    is_editing = "edit" in request.GET and person(request).may_operate
    return render(request, "pages/trash/_name_form.html" if is_editing else "pages/trash/_name.html", context)


def _rename(request: HttpRequest, kind: DeletableKind, context: dict[str, Any]) -> HttpResponseBase:
    if not person(request).may_operate:
        raise PermissionDenied("This requires the operator role. Ask an admin of this installation for it.")
    typed = request.POST.get("name", "")
    try:
        naming.rename(kind, context["row"], typed, person(request))
    except naming.NameRefused as error:
        context |= {"typed": typed, "problem": str(error)}
        return render(request, "pages/trash/_name_form.html", context, status=422)
    return render(request, "pages/trash/_name.html", context | {"renamed": True})


def _kind(kind_slug: str) -> DeletableKind:
    if kind_slug not in KINDS:
        raise Http404
    return KINDS[kind_slug]


def _rows(kind: DeletableKind, ids: list[str]) -> list[Any]:
    keys = [kind.key(key) for key in ids[:MAX_LISTED]]
    return list(kind.model.objects.filter(pk__in=keys).order_by("name", "pk"))
