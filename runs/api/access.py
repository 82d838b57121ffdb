"""Who may call the API: the bearer of a personal token whose scope covers the route. Sessions count nothing here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
