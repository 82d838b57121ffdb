"""Middleware for protective headers, refused methods, unfinished work, NUL characters, and the sign-in requirement."""

import logging
from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import resolve_url
from django.utils.cache import patch_vary_headers

from controlplane.platform.confined.limits import NotFinished, asker
from controlplane.platform.datafolder import FULL_DISK_ERRORS
from controlplane.platform.http.errors import (
    bad_body,
    bad_request,
    disk_full,
    error_json,
    method_not_allowed,
    not_finished,
    wants_json,
)
from controlplane.platform.http.request_body import BadBody

log = logging.getLogger(__name__)

STOP_POLLING = 286
"""htmx's status for “swap, then stop polling”."""
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)


class ProtectiveHeaders:
    """Middleware that sets a strict Content-Security-Policy, secure cookies over https, and private caching.

    The browser may cache pages; otherwise a form would be empty after going back. Vary keeps it from showing a fragment
    that htmx requested instead of the page at the same address.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers["Content-Security-Policy"] = POLICY
        response.headers.setdefault("Cache-Control", "private")
        patch_vary_headers(response, ["HX-Request"])
        if request.is_secure():
            for cookie in response.cookies.values():
                cookie["secure"] = True
        return response


class RefusedMethodPages:
    """Middleware that shows a page for a refused method, because people open the addresses of forms. Django's response
    is empty."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code == 405 and not response.streaming and not response.content:
            return method_not_allowed(request, response.headers["Allow"])
        return response


class NoNul:
    """Middleware that refuses NUL characters, which PostgreSQL doesn't accept even in queries.

    It checks the path, the query and plain forms. Uploads and the host API check their own input.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        is_plain_form = request.content_type == "application/x-www-form-urlencoded"
        if "\0" in request.path or _has_nul(request.GET) or (is_plain_form and _has_nul(request.POST)):
            return bad_request(request)
        return self.get_response(request)


def _has_nul(parameters: QueryDict) -> bool:
    return any("\0" in value for _, values in parameters.lists() for value in values)


class UnfinishedWork:
    """Middleware that says whose request the work of child processes is for, and shows the reason when a child didn't
    finish it, its body was refused, or the disk is full, unless the view shows it where it belongs."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        # Not request.user yet: the API's tokens are read later, and most requests need no child.
        token = asker.set(lambda: str(request.user.pk or ""))
        try:
            return self.get_response(request)
        finally:
            asker.reset(token)

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if isinstance(exception, BadBody):
            return bad_body(request, exception)
        if isinstance(exception, OSError) and exception.errno in FULL_DISK_ERRORS:
            log.error("There is no room for what a request writes", exc_info=exception)
            return disk_full(request)
        return not_finished(request, exception) if isinstance(exception, NotFinished) else None


class SignInRequired(LoginRequiredMiddleware):
    """Sign-in requirement. Scripts get 401, because a redirect would put the sign-in page into a fragment."""

    def handle_no_permission(  # type: ignore[override]  # django-stubs narrows it to the redirect
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase]
    ) -> HttpResponseBase:
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Redirect": resolve_url("sign_in")})
        if wants_json(request):
            return error_json(401, "Not signed in.", where="session", fix="Sign in and load the page again.")
        return super().handle_no_permission(request, view_func)
