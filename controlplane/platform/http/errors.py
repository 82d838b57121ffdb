"""The error pages, and the format of JSON errors: {"error": {"what", "where", "fix"}}."""

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

from controlplane.platform.confined.limits import Busy, NotFinished
from controlplane.platform.http import outage
from controlplane.platform.http.request_body import BadBody

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
"""Route and label of the list page by the first part of an address."""


class Deleted(Http404):
    """Error for a deleted object that can still be restored, by a POST to the address `restore`."""

    def __init__(self, message: str, fix: str, restore: str) -> None:
        super().__init__(message)
        self.fix, self.restore = fix, restore


def error_json(status: int, what: str, *, where: str = "", fix: str = "") -> JsonResponse:
    return JsonResponse({"error": {"what": what, "where": where, "fix": fix}}, status=status)


def wants_json(request: HttpRequest) -> bool:
    """Return whether the request comes from a program or script rather than a browser window."""
    return request.path.startswith("/api/") or request.headers.get("Accept", "").startswith("application/json")


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    if isinstance(exception, DisallowedHost):
        name = split_domain_port(request.META.get("HTTP_HOST", ""))[0] or "this name"
        message = (
            f"The control plane doesn't accept the name “{name}”. Its administrator can add it to CONTROLPLANE_HOSTS "
            "(separated by commas) and restart it."
        )
        return _error(request, 400, "Unknown name", message)
    return _error(
        request,
        400,
        "Not understood",
        "This request can't be read: it has too many parts, or it didn't come from this page.",
    )


def bad_body(request: HttpRequest, error: BadBody) -> HttpResponse:
    title = "Too large" if error.status == 413 else "Not understood"
    return _error(request, error.status, title, error.what, fix=error.fix)


def forbidden(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    # Our own PermissionDenied errors have a message for people; others are empty.
    return _error(request, 403, "Not allowed", str(exception or "") or "You may not do this.")


def csrf_failed(request: HttpRequest, reason: str = "") -> HttpResponse:
    message = "This form was out of date or came from another site, so nothing was done. Go back, reload and try again."
    return _error(request, 403, "Not accepted", message)


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    detail = exception.args[0] if exception is not None and exception.args else ""
    is_ours = isinstance(detail, str) and detail and not detail.endswith("matches the given query.")  # Django's message
    message = str(detail) if is_ours else "There is nothing at this address."
    links = [(reverse("deleted"), "Recently deleted")]
    if isinstance(exception, Deleted):
        return _error(request, 404, "Deleted", message, fix=exception.fix, restore=exception.restore, links=links)
    return _error(
        request, 404, "Not found", message, fix="If it was deleted, look under Recently deleted.", links=links
    )


def method_not_allowed(request: HttpRequest, allowed: str) -> HttpResponse:
    message = "This address only accepts forms. There is nothing to show, and nothing was done."
    response = _error(request, 405, "Nothing to show here", message)
    response.headers["Allow"] = allowed
    return response


def server_error(request: HttpRequest) -> HttpResponse:
    # Django calls this while it handles the error.
    error = sys.exc_info()[1]
    if outage.is_away(error):
        return database_away(request, outage.reason(error))
    message = "Something went wrong on our side. Your runs are not affected."
    now = timezone.now()
    fix = f"If it happens again, tell the administrator: the cause is in web.log at {now:%H:%M:%S} UTC."
    if wants_json(request):
        return error_json(500, message, fix=fix)
    retry_address = request.get_full_path() if request.method in ("GET", "HEAD") else ""
    return error_page(500, "Server error", message, fix=fix, again=retry_address, links=_links(request))


def not_finished(request: HttpRequest, error: NotFinished) -> HttpResponse:
    """Return a 503 response if the server is busy, or a 422 response if this input exceeds a limit."""
    if not isinstance(error, Busy):
        return _error(request, 422, "Stopped at a limit", str(error))
    response = _error(request, 503, "The server is busy", str(error))
    response.headers["Retry-After"] = str(RETRY_S)
    return response


def disk_full(request: HttpRequest) -> HttpResponse:
    message = "The disk of the control plane is full, so this wasn't done."
    return _error(request, 507, "The disk is full", message, fix="Free some space there, then try again.")


def database_away(request: HttpRequest, reason: str) -> HttpResponse:
    """Return a 503 response. Supervisors and websockets retry by themselves, pages through the Refresh header."""
    if wants_json(request):
        response: HttpResponse = error_json(503, reason, where="database", fix="Send the same request again.")
    elif request.method == "GET" and not request.headers.get("HX-Request"):
        response = error_page(503, "The database is unavailable", f"{reason} This page retries automatically.")
        response.headers["Refresh"] = str(RETRY_S)
    else:
        advice = "Go back in a moment, and check whether it was done."
        response = error_page(503, "The database is unavailable", f"{reason} {advice}")
    response.headers["Retry-After"] = str(RETRY_S)
    response.headers["Cache-Control"] = "no-store"
    return response


def error_page(status: int, title: str, message: str, **context: Any) -> HttpResponse:
    """Render an error page without the request, whose context processors (database, session) may be broken.

    `context` may have "fix", a sentence; "again", an address to retry; "back", the address of the previous page; and
    "links", as (address, label).
    """
    page = render_to_string("error.html", {"status": status, "title": title, "message": message, **context})
    return HttpResponse(page, status=status)


def _error(
    request: HttpRequest,
    status: int,
    title: str,
    message: str,
    *,
    fix: str = "",
    restore: str = "",
    links: Sequence[tuple[str, str]] = (),
) -> HttpResponse:
    if wants_json(request):
        return error_json(status, message, fix=fix)
    context = {"status": status, "title": title, "message": message, "fix": fix, "restore": restore}
    return render(request, "error.html", context | {"links": [*_links(request), *links]}, status=status)


def _links(request: HttpRequest) -> list[tuple[str, str]]:
    section = request.path.strip("/").partition("/")[0]
    lists = dict.fromkeys(filter(None, (SECTIONS.get(section), SECTIONS["runs"])))
    links = [(reverse(route), label) for route, label in lists]
    return [(address, label) for address, label in links if address != request.path]
