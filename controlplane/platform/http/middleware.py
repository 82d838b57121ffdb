"""The headers that protect all answers, and the sign-in requirement of all views."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponse, HttpResponseBase, QueryDict
from django.shortcuts import resolve_url
from django.utils.cache import patch_vary_headers

from controlplane.platform.http.errors import bad_request, error_json, method_not_allowed, wants_json

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
    """The strict Content-Security-Policy; cookies that are only sent encrypted again if they came so; and pages that
    only the browser may keep. (It may: otherwise a form would be empty after a step back.) A part of a page that htmx
    asked for at the page's own address is never shown in its place."""

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


class RefusedMethodsInWords:
    """A page in place of Django's empty answer to a method that a view doesn't take: people load a form's address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        if response.status_code == 405 and not response.streaming and not response.content:
            return method_not_allowed(request, response.headers["Allow"])
        return response


class NoNul:
    """Rejects NUL characters, which no stored text has and PostgreSQL refuses even in queries.

    Checks the path, the query and plain forms; uploads and the API for hosts check their own input.
    """

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        plain = request.content_type == "application/x-www-form-urlencoded"
        if "\0" in request.path or _has_nul(request.GET) or (plain and _has_nul(request.POST)):
            return bad_request(request)
        return self.get_response(request)


def _has_nul(sent: QueryDict) -> bool:
    return any("\0" in value for _, values in sent.lists() for value in values)


class SignInRequired(LoginRequiredMiddleware):
    """Django's own, except for requests of scripts: a redirect would put the sign-in page into a fragment."""

    def handle_no_permission(  # type: ignore[override]  # django-stubs narrows it to the redirect
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase]
    ) -> HttpResponseBase:
        if request.headers.get("HX-Request"):
            return HttpResponse(status=401, headers={"HX-Redirect": resolve_url("sign_in")})
        if wants_json(request):
            return error_json(401, "Not signed in.", where="session", fix="Sign in and load the page again.")
        return super().handle_no_permission(request, view_func)
