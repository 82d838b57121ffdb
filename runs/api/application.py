"""The API application: routes, OpenAPI description, request parsing, error responses and audit."""

import functools
import json
from collections.abc import Callable
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, JsonResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.http import require_safe
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.parser import Parser
from ninja.responses import NinjaJSONEncoder

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiToken
from controlplane.platform.confined.limits import NotFinished
from controlplane.platform.http import addresses
from controlplane.platform.http.errors import error_json, not_finished
from controlplane.platform.http.request_body import BadBody, decode
from runs.api.access import Problem, unauthorized
from runs.api.routes import (
    activity_routes,
    adding_routes,
    admin_routes,
    corpus_routes,
    dataset_routes,
    evaluation_routes,
    host_routes,
    model_routes,
    playground_routes,
    profile_routes,
    result_routes,
    run_routes,
    search_routes,
    serving_routes,
    sharing_routes,
    study_routes,
    token_routes,
    trash_routes,
    versioned_routes,
)

VERSION = "1"
WRITING_METHODS = ("POST", "PUT", "PATCH", "DELETE")
DESCRIPTION = """
Everything that the pages can do, for programs. Send a personal token (Settings, API tokens) with each request:
`Authorization: Bearer grpo_…`. Lists are paged: pass `next_cursor` as `cursor` until it is empty. An error is
`{"error": {"what", "where", "fix"}}`. After a 429, wait the number of seconds given in `Retry-After`.
""".strip()


class StrictJson(Parser):
    """Body parser that accepts a JSON object without NaN, unpaired surrogates or NUL."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        return decode(request.body, dict[str, Any])


api = NinjaAPI(
    title="GRPO control plane",
    version=VERSION,
    description=DESCRIPTION,
    openapi_url=None,
    docs_url=None,
    urls_namespace="v1",
    parser=StrictJson(),
)
routers = (
    run_routes.router,
    result_routes.router,
    evaluation_routes.router,
    study_routes.router,
    sharing_routes.router,
    adding_routes.router,
    dataset_routes.router,
    corpus_routes.router,
    versioned_routes.router,
    playground_routes.router,
    model_routes.router,
    serving_routes.router,
    profile_routes.router,
    host_routes.router,
    admin_routes.router,
    token_routes.router,
    activity_routes.router,
    search_routes.router,
    trash_routes.router,
)
for router in routers:
    api.add_router("", router)


@api.exception_handler(Problem)
@api.exception_handler(BadBody)
def _handle_problem(request: HttpRequest, error: Problem | BadBody) -> HttpResponse:
    response = error_json(error.status, error.what, where=error.where, fix=error.fix)
    if isinstance(error, Problem) and error.extra:
        response = JsonResponse(json.loads(response.content) | error.extra, status=error.status)
    if error.status == 401:
        response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(AuthenticationError)
def _handle_missing_token(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    return _handle_problem(request, unauthorized("The request has no token."))


@api.exception_handler(ValidationError)
def _handle_validation_error(request: HttpRequest, error: ValidationError) -> HttpResponse:
    first_error = error.errors[0] if error.errors else {}
    where = ".".join(str(part) for part in first_error.get("loc", ()) if part != "payload")
    fix = "/api/v1/openapi.json describes what is expected there."
    return error_json(422, f"{first_error.get('msg', 'The request is not valid')}.", where=where, fix=fix)


@api.exception_handler(HttpError)
def _handle_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    if isinstance(error.__cause__, BadBody):  # ninja wraps what its parser raises
        return _handle_problem(request, error.__cause__)
    return error_json(error.status_code, str(error))


@api.exception_handler(Http404)
def _handle_not_found(request: HttpRequest, error: Http404) -> HttpResponse:
    reason = str(error) if error.args and isinstance(error.args[0], str) else "No object has this id."
    return error_json(404, reason, where="path", fix="It may have been deleted. List the existing objects.")


@api.exception_handler(NotFinished)
def _not_finished(request: HttpRequest, error: NotFinished) -> HttpResponse:
    return not_finished(request, error)


@api.exception_handler(PermissionDenied)
def _handle_permission_denied(request: HttpRequest, error: PermissionDenied) -> HttpResponse:
    return error_json(403, str(error) or "You may not do this.")


@functools.cache
def _document() -> bytes:
    schema = api.get_openapi_schema(path_prefix="/api/v1/")
    schemes = schema["components"].get("securitySchemes", {})
    # A single scheme for all scopes, since all tokens are of the same kind.
    schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}} if schemes else {}
    for item in schema["paths"].values():
        for operation in item.values():
            operation["security"] = [{"token": []}]
    return json.dumps(schema, cls=NinjaJSONEncoder).encode()


@functools.cache
def description() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_document())
    return document


@login_not_required
@require_safe
def openapi(request: HttpRequest) -> HttpResponse:
    """Return the API's description. It depends only on the version, so no sign-in is required."""
    return HttpResponse(_document(), content_type="application/json")


def _guarded(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """Wrap a view so that it accepts tokens instead of sessions and records every write request of a token."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        if isinstance(response, HttpResponseNotAllowed):
            refusal = error_json(405, f"{request.method} is not allowed here.", where="method")
            refusal["Allow"] = response["Allow"]
            return refusal
        response.headers.setdefault("Cache-Control", "no-store")  # responses differ by user, and some contain a key
        token = getattr(request, "auth", None)
        if request.method in WRITING_METHODS and isinstance(token, ApiToken):
            address = addresses.of_client(request)
            api_tokens.note(token, f"{request.method} {request.path}", status=response.status_code, address=address)
        return response

    guarded.csrf_exempt = True  # type: ignore[attr-defined]  # cookies are not accepted
    return login_not_required(guarded)


_routes: list[Any] = api.urls[0]
urlpatterns = [path("openapi.json", openapi, name="api_openapi")] + [
    path(str(route.pattern), _guarded(route.callback), name=route.name) for route in _routes if route.name != "api-root"
]
