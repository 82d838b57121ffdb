"""Access to the API by personal tokens, its error answers, and its router. A session of a browser gives no access."""

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
from controlplane.platform.http import api_throttle

M = TypeVar("M", bound=Model)


class Problem(Exception):
    """An error answer in the product's format: what happened, where, and what to do about it."""

    def __init__(
        self, status: int, what: str, *, where: str = "", fix: str = "", extra: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix
        self.extra = dict(extra or {})
        """Further keys of the answer, next to `error`."""


@contextmanager
def refusing(
    *errors: type[Exception], where: str, status: int = 409, text: str = "{}", fix: str = ""
) -> Iterator[None]:
    """Answer these errors of the domain with a Problem. `text`: its sentence, with {} for the error's own."""
    try:
        yield
    except errors as error:
        raise Problem(status, text.format(error), where=where, fix=fix) from None


def no_sign_in(reason: str) -> Problem:
    """Make the answer to a request without a valid token."""
    fix = "Make a token under Settings, API tokens, and send it as: Authorization: Bearer grpo_…"
    return Problem(401, reason, where="Authorization", fix=fix)


def existing(rows: QuerySet[M], pk: int, missing: str) -> M:
    """Find the row with this id. Raises Http404 with a text such as `There is no user 3.`; `missing`: without id."""
    row = rows.filter(pk=pk).first()
    if row is None:
        raise Http404(f"{missing} {pk}.")
    return row


class Bearer(HttpBearer):
    """Authenticates a personal token with the scope that a route needs."""

    def __init__(self, scope: ApiScope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        row = api_tokens.find(token.strip())
        if row is None:
            api_throttle.count_refusal(str(request.META.get("REMOTE_ADDR", "")))
            raise no_sign_in("This token is unknown, expired or revoked.")
        request.user = api_tokens.acting(row)
        request.auth = row  # type: ignore[attr-defined]  # before the check: refused requests are audited, too
        if not api_tokens.allows(row, self.scope):
            raise Problem(
                403,
                f"This needs a token with the scope “{self.scope.value}”, and a role that has it.",
                where="Authorization",
                fix="Make such a token under Settings, API tokens; an admin gives roles.",
            )
        return row


READ, OPERATE, ADMIN = Bearer(ApiScope.READ), Bearer(ApiScope.OPERATE), Bearer(ApiScope.ADMIN)


class Router(ninja.Router):
    """Routes of the API. A GET needs the scope READ and any other verb OPERATE, unless the route names another.

    The first sentence of a route's docstring is the operation's summary, the rest its description. The URL is named
    after the operation, such as `GET runs/{run_id}`.
    """

    def add_api_operation(
        self, path: str, methods: list[str], view_func: Callable[..., Any], *, auth: Any = None, **options: Any
    ) -> None:
        # Split after the first sentence, without its full stop.
        summary, *rest = re.split(r"\.(?:\s+|$)", inspect.getdoc(view_func) or "", maxsplit=1)
        options |= {"summary": summary, "url_name": f"{methods[0]} {re.sub(r'[a-z]+:', '', path)}"}
        if not isinstance(auth, Bearer):
            auth = READ if methods == ["GET"] else OPERATE
        super().add_api_operation(path, methods, view_func, auth=auth, **options)
        self.path_operations[path].operations[-1].description = "".join(rest)
