"""Who may call the API: the bearer of a personal token whose scope covers the route. A session gives no access here.

`Router` derives from an operation's verb and docstring what would otherwise be written with each of them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import ninja
from django.http import HttpRequest
from ninja.security import HttpBearer

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiScope, ApiToken
from controlplane.platform.http import api_throttle


class Problem(Exception):
    """An answer in the product's error format: what happened, where, what to do."""

    def __init__(
        self, status: int, what: str, *, where: str = "", fix: str = "", more: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(what)
        self.status, self.what, self.where, self.fix = status, what, where, fix
        self.more = dict(more or {})
        """Beside the error."""


class Bearer(HttpBearer):
    """A route's guard; OpenAPI shows one scheme for all of them."""

    def __init__(self, scope: ApiScope) -> None:
        super().__init__()
        self.scope = scope

    def authenticate(self, request: HttpRequest, token: str) -> ApiToken:
        row = api_tokens.find(token.strip())
        if row is None:
            api_throttle.refused(str(request.META.get("REMOTE_ADDR", "")))
            raise Problem(
                401,
                "This token is unknown, expired or revoked.",
                where="Authorization",
                fix="Make a token under Settings, API tokens, and send it as: Authorization: Bearer grpo_…",
            )
        request.user = api_tokens.acting(row)
        request.auth = row  # type: ignore[attr-defined]  # also for a refusal, which is audited
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
    """Routes of the API. A GET needs the scope READ and any other verb OPERATE, unless the route says otherwise.

    The docstring's first sentence is the operation's summary; the rest describes it. Its URL is named after the
    operation, such as `GET runs/{run_id}`.
    """

    def add_api_operation(
        self, path: str, methods: list[str], view_func: Callable[..., Any], *, auth: Any = None, **options: Any
    ) -> None:
        summary, description = _summary(inspect.getdoc(view_func) or "")
        options |= {"summary": summary, "url_name": f"{methods[0]} {re.sub(r'[a-z]+:', '', path)}"}
        if not isinstance(auth, Bearer):
            auth = READ if methods == ["GET"] else OPERATE
        super().add_api_operation(path, methods, view_func, auth=auth, **options)
        self.path_operations[path].operations[-1].description = description


def _summary(doc: str) -> tuple[str, str]:
    """Split a docstring into its first sentence, without the full stop, and the rest."""
    sentence, *rest = re.split(r"\.(?:\s+|$)", doc, maxsplit=1)
    return sentence, "".join(rest)
