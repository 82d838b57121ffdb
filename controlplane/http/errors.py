"""The error pages, and the format of JSON errors: {"error": {"what", "where", "fix"}}."""

from __future__ import annotations

import sys

from django.core.exceptions import DisallowedHost
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.request import split_domain_port
from django.shortcuts import render
from django.template.loader import render_to_string

from controlplane.http import outage

RETRY_S = 5
AWAY = "The database can't be reached. Runs go on training and hand in what they wrote as soon as it is back."


def error_json(status: int, what: str, *, where: str = "", fix: str = "") -> JsonResponse:
    return JsonResponse({"error": {"what": what, "where": where, "fix": fix}}, status=status)


def wants_json(request: HttpRequest) -> bool:
    """Whether a program sent the request, not a browser window."""
    return request.path.startswith("/api/") or request.headers.get("Accept", "").startswith("application/json")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        name = split_domain_port(request.META.get("HTTP_HOST", ""))[0] or "this name"
        what = (
            f"The control plane does not answer to “{name}”. Whoever runs it lists the name in CONTROLPLANE_HOSTS "
            "(commas between several) and starts it again."
        )
        return _error(request, 400, "Unknown name", what)
    return _error(request, 400, "Not understood", "This request can't be read: too many parts, or not of this page.")


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    # The text of a view's own PermissionDenied is for people; others are empty.
    what = str(exception or "") or "You may not do this."
    return _error(request, 403, "Not allowed", what)


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    what = "This form was out of date or came from another site, so nothing was done. Go back, reload and try again."
    return _error(request, 403, "Not accepted", what)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    what = "There is nothing at this address. If it was deleted, look under Settings, Recently deleted."
    return _error(request, 404, "Not found", what)


def server_error(request: HttpRequest) -> HttpResponse:
    # Django requests this page while it handles the error.
    if outage.is_away(sys.exc_info()[1]):
        return database_away(request)
    what = "Something went wrong on our side. It is in the web's log with its cause; runs are not affected."
    if wants_json(request):
        return error_json(500, what)
    return error_page(500, "Server error", what)


def database_away(request: HttpRequest) -> HttpResponse:
    """503. Clients retry: supervisors with back-off, pages by the Refresh header, sockets by their feed, the tick on
    schedule."""
    if wants_json(request):
        fix = "Send the same request again."
        response: HttpResponse = error_json(503, AWAY, where="database", fix=fix)
    else:
        comes_back = request.method == "GET" and not request.headers.get("HX-Request")
        ask = (
            " This page tries again by itself."
            if comes_back
            else " Go back and look, in a moment, whether it was still done."
        )
        response = error_page(503, "The database is away", AWAY + ask)
        if comes_back:
            response.headers["Refresh"] = str(RETRY_S)
    response.headers["Retry-After"] = str(RETRY_S)
    response.headers["Cache-Control"] = "no-store"
    return response


def error_page(status: int, title: str, what: str) -> HttpResponse:
    """Rendered without the request: its context processors (database, session) may be what is broken."""
    page = render_to_string("error.html", {"status": status, "title": title, "what": what})
    return HttpResponse(page, status=status)


def _error(request: HttpRequest, status: int, title: str, what: str) -> HttpResponse:
    if wants_json(request):
        return error_json(status, what)
    return render(request, "error.html", {"status": status, "title": title, "what": what}, status=status)
