"""The error pages, and the format of JSON errors: {"error": {"what", "where", "fix"}}."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import DisallowedHost
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.http.request import split_domain_port
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone

from controlplane.platform.http import outage

RETRY_S = 5
SECTIONS = {
    "runs": ("runs", "All runs"),
    "datasets": ("datasets", "All datasets"),
    "rewards": ("reward_configs", "All reward configs"),
    "environments": ("environments", "All environments"),
    "models": ("models", "All models"),
    "hardware": ("hardware", "Hardware"),
    "events": ("events", "Events"),
    "settings": ("settings", "Settings"),
    "users": ("settings", "Settings"),
    "help": ("documents", "Documentation"),
}
"""The route and the label of the list for the first part of an address."""
AWAY = "The database can't be reached. Runs keep training and send their results as soon as it is back."


class Deleted(Http404):
    """The object was deleted and can still be restored."""

    def __init__(self, what: str, fix: str, restore: str) -> None:
        """`restore`: the address that restores it, by POST."""
        super().__init__(what)
        self.fix, self.restore = fix, restore


def error_json(status: int, what: str, *, where: str = "", fix: str = "") -> JsonResponse:
    return JsonResponse({"error": {"what": what, "where": where, "fix": fix}}, status=status)


def wants_json(request: HttpRequest) -> bool:
    """Return whether a program sent the request, not a browser window."""
    return request.path.startswith("/api/") or request.headers.get("Accept", "").startswith("application/json")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        name = split_domain_port(request.META.get("HTTP_HOST", ""))[0] or "this name"
        what = (
            f"The control plane does not answer to “{name}”. Its administrator can add the name to CONTROLPLANE_HOSTS "
            "(separated by commas) and restart it."
        )
        return _error(request, 400, "Unknown name", what)
    return _error(request, 400, "Not understood", "This request can't be read: too many parts, or not of this page.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    # A PermissionDenied of ours has a text for people; others are empty.
    what = str(exception or "") or "You may not do this."
    return _error(request, 403, "Not allowed", what)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    what = "This form was out of date or came from another site, so nothing was done. Go back, reload and try again."
    return _error(request, 403, "Not accepted", what)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    text = exception.args[0] if exception is not None and exception.args else ""
    is_ours = isinstance(text, str) and text and not text.endswith("matches the given query.")  # Django's text
    what = str(text) if is_ours else "There is nothing at this address."
    ways = [(reverse("deleted"), "Recently deleted")]
    if isinstance(exception, Deleted):
        return _error(request, 404, "Deleted", what, fix=exception.fix, restore=exception.restore, ways=ways)
    return _error(request, 404, "Not found", what, fix="If it was deleted, look under Recently deleted.", ways=ways)


def method_not_allowed(request: HttpRequest, allowed: str) -> HttpResponse:
    what = "This address only accepts forms. There is nothing to show, and nothing was done."
    response = _error(request, 405, "Nothing to show here", what)
    response.headers["Allow"] = allowed
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    # Django calls this while it handles the error.
    if outage.is_away(sys.exc_info()[1]):
        return database_away(request)
    what = "Something went wrong on our side. Your runs are not affected."
    now = timezone.now()
    fix = f"If it happens again, tell the administrator: the cause is in web.log at {now:%H:%M:%S} UTC."
    if wants_json(request):
        return error_json(500, what, fix=fix)
    again = request.get_full_path() if request.method in ("GET", "HEAD") else ""
    return error_page(500, "Server error", what, fix=fix, again=again, ways=_ways(request))


def database_away(request: HttpRequest) -> HttpResponse:
    """Answer 503. Clients retry: supervisors with back-off, pages by the Refresh header, sockets by their feed."""
    if wants_json(request):
        fix = "Send the same request again."
        response: HttpResponse = error_json(503, AWAY, where="database", fix=fix)
    else:
        comes_back = request.method == "GET" and not request.headers.get("HX-Request")
        ask = (
            " This page retries automatically."
            if comes_back
            else " Go back in a moment, and check whether it was done."
        )
        response = error_page(503, "The database is away", AWAY + ask)
        if comes_back:
            response.headers["Refresh"] = str(RETRY_S)
    response.headers["Retry-After"] = str(RETRY_S)
    response.headers["Cache-Control"] = "no-store"
    return response


def error_page(status: int, title: str, what: str, **more: Any) -> HttpResponse:
    """Render an error page without the request, whose context processors (database, session) may be broken.

    `more`: "fix", a sentence; "again", an address to retry; "back", the address of the previous page; "ways", links as
    (address, label).
    """
    page = render_to_string("error.html", {"status": status, "title": title, "what": what, **more})
    return HttpResponse(page, status=status)


def _error(
    request: HttpRequest,
    status: int,
    title: str,
    what: str,
    *,
    fix: str = "",
    restore: str = "",
    ways: Sequence[tuple[str, str]] = (),
) -> HttpResponse:
    if wants_json(request):
        return error_json(status, what, fix=fix)
    context = {"status": status, "title": title, "what": what, "fix": fix, "restore": restore}
    return render(request, "error.html", context | {"ways": [*_ways(request), *ways]}, status=status)


def _ways(request: HttpRequest) -> list[tuple[str, str]]:
    """Return links as (address, label): to the list that contains the requested page, and to all runs."""
    section = request.path.strip("/").partition("/")[0]
    known = [(reverse(SECTIONS[section][0]), SECTIONS[section][1])] if section in SECTIONS else []
    ways = [way for way in known if way[0] != request.path]
    runs = (reverse("runs"), "All runs")
    return ways if runs in ways or request.path == runs[0] else [*ways, runs]
