"""Authentication of API requests by personal token (never by browser session), error responses and the router."""

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import ninja
from django.db.models import Model, QuerySet
from django.http import Http404, HttpRequest
from ninja.security import HttpBearer

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, ApiToken
from controlplane.platform.http import addresses, api_throttle

M = TypeVar("M", bound=Model)


class Problem(Exception):
    """An error response in the product's format: what happened, where, and what to do about it."""

    def __init__(
        self, status: int, what: str, *, where: str = "", fix: str = "", extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix
        self.extra = dict(extra or {})
        """Additional keys of the response, next to `error`."""


@contextmanager
def refusing(
    *errors: type[Exception], where: str, status: int = 409, message: str = "{}", fix: str = ""
) -> Iterator[None]:
    """Raise a Problem for any of these domain errors. In `message`, {} stands for the error's own message."""
    try:
        yield
    except errors as error:
        raise Problem(status, message.format(error), where=where, fix=fix) from None


def unauthorized(reason: str) -> Problem:
    """Return the Problem for a request without a valid token."""
    fix = "Create a token under Settings, API tokens, and send it as: Authorization: Bearer grpo_…"
    return Problem(401, reason, where="Authorization", fix=fix)


def row_or_404(rows: QuerySet[M], pk: int, missing: str) -> M:
    """Return the row with this id. If there is none, raise Http404 with `missing` and the id: `There is no user 3.`"""
    row = rows.filter(pk=pk).first()
    if row is None:
        raise Http404(f"{missing} {pk}.")
    return row


class Bearer(HttpBearer):
    """Authentication by a personal token that has the scope a route requires."""

    def __init__(self, scope: ApiScope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        row = api_tokens.find(token.strip())
        if row is None:
            api_throttle.count_refusal(addresses.of_client(request))
            raise unauthorized("This token is unknown, expired or revoked.")
        request.user = api_tokens.acting(row)
        request.auth = row  # type: ignore[attr-defined]  # before the check, because refused requests are audited too
        if not api_tokens.allows(row, self.scope):
            raise Problem(
                403,
                f"This requires a token with the scope “{self.scope.value}” and a role that allows it.",
                where="Authorization",
                fix="Create one under Settings, API tokens. An admin can change your role.",
            )
        return row


READ, OPERATE, ADMIN = Bearer(ApiScope.READ), Bearer(ApiScope.OPERATE), Bearer(ApiScope.ADMIN)


class Router(ninja.Router):
    """Router of the API. GET requires the scope READ and other methods OPERATE, unless a route sets `auth`.

    The first sentence of a route's docstring becomes the operation's summary and the rest its description. URL names
    consist of method and path, such as `GET runs/{run_id}`.
    """

    def add_api_operation(
        self, path: str, methods: list[str], view_func: Callable[..., Any], *, auth: Any = None, **options: Any
    ) -> None:
        summary, *details = re.split(r"\.(?:\s+|$)", inspect.getdoc(view_func) or "", maxsplit=1)
        url_name = f"{methods[0]} " + re.sub(r"\{[a-z]+:", "{", path)
        options |= {"summary": summary, "url_name": url_name}
        if not isinstance(auth, Bearer):
            auth = READ if methods == ["GET"] else OPERATE
        super().add_api_operation(path, methods, view_func, auth=auth, **options)
        self.path_operations[path].operations[-1].description = "".join(details)
