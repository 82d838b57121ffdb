"""Shared links of a run: the page that manages them, and the public pages behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from controlplane.platform.accounts.roles import operator_required, person
from controlplane.platform.http.form_pages import form_page, keep_once, take_once
from controlplane.platform.http.keyset import listed
from runs.engine import queries
from runs.engine.models import Run
from runs.engine.sharing import links
from runs.engine.sharing.models import SharedLink
from runs.insight.metrics import views as metrics_views
from runs.pages.sharing import content
from runs.pages.sharing.forms import ShareForm

HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Robots-Tag": "noindex, nofollow",
}
UNKNOWN = "It may be mistyped or cut off, or it ended long ago."


# --- pages for signed-in users ------------------------------------------------------------------------------------


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def share(request: HttpRequest, run_id: str) -> HttpResponse:
    run = queries.run_for(request, run_id)
    form = ShareForm(request.POST if request.method == "POST" else None)
    if request.method == "POST":
        if not person(request).may_operate:
            raise PermissionDenied(
                "Making a link requires the operator role. Ask an admin of this installation for it."
            )
        if form.is_valid() and (address := _made(request, run, form)):
            keep_once(request, f"link to {run.pk}", address)
            return redirect("run_share", run.pk)
    context = {
        "run": run,
        "form": form,
        "address": "".join(take_once(request, f"link to {run.pk}")),
        "links": links.open_links(run),
        "may_operate": person(request).may_operate,
        "obstacle": _obstacle(run, may_operate=person(request).may_operate),
    }
    return form_page(request, "pages/sharing/share.html", context)


def _obstacle(run: Run, *, may_operate: bool) -> str:
    """Why this user can't share the run, or ""."""
    if not may_operate:
        return "Operators make and revoke links."
    if not settings.SHARE_MAX_DAYS:
        return "Sharing is turned off in this installation."
    return "The run is archived: unarchive it to share it." if run.archived_at else ""


@require_POST
@operator_required
def revoke(request: HttpRequest, run_id: str, link_id: int) -> HttpResponseBase:
    run = queries.run_for(request, run_id)
    if links.revoke(get_object_or_404(SharedLink, pk=link_id, run=run), person(request)):
        messages.success(request, "The link is revoked. Its page now says that it has ended.")
    else:
        messages.info(request, "The link was already revoked.")
    return redirect("run_share", run.pk)


def address_of(request: HttpRequest, token: str) -> str:
    return request.build_absolute_uri(reverse("shared", args=[token]))


def _made(request: HttpRequest, run: Run, form: ShareForm) -> str:
    """Create the link and return its address; "" adds an error to the form."""
    chosen = form.cleaned_data
    try:
        _, token = links.make(run, person(request), until=chosen["until"], with_completions=chosen["with_completions"])
    except links.NotShared as error:
        form.add_error(None, str(error))
        return ""
    return address_of(request, token)


# --- public pages behind a link -----------------------------------------------------------------------------------

LinkView = Callable[[HttpRequest, SharedLink, str], HttpResponse]


def _by_link(view: LinkView) -> Callable[[HttpRequest, str], HttpResponse]:
    """Check a link's token; sessions are ignored."""

    @login_not_required
    @require_safe
    @wraps(view)
    def by_link(request: HttpRequest, token: str) -> HttpResponse:
        link = links.find(token)
        if link is None:
            response = _closed(request, 404, "No such link", UNKNOWN)
        elif why := links.ended(link):
            response = _closed(request, 410, "This link has ended", why)
        else:
            links.opened(link)
            response = view(request, link, token)
        for name, value in HEADERS.items():
            response.headers[name] = value
        return response

    return by_link


@_by_link
def shared(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    return render(request, "pages/sharing/shared.html", content.page(link, content.run_of(link), token))


@_by_link
def shared_now(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    """The parts that change, for the page to swap in."""
    return render(request, "pages/sharing/_now.html", {**content.now(link, content.run_of(link)), "parts": True})


@_by_link
def shared_series(request: HttpRequest, link: SharedLink, token: str) -> HttpResponse:
    """Points of its charts, in the format of a run's page."""
    run = content.run_of(link)
    known, requested = content.metrics(run), listed(request.GET.get("metrics", ""))
    return metrics_views.points_of(request, run, [name for name in known if name in requested] if requested else known)


def _closed(request: HttpRequest, status: int, title: str, what: str) -> HttpResponse:
    context: dict[str, Any] = {"title": title, "what": what}
    return render(request, "pages/sharing/ended.html", context, status=status)
