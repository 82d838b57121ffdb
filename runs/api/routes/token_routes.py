"""Tokens: the one of the request, and a person's tokens. No program can make one: a stolen token must expire."""

from typing import Any

from django.http import HttpRequest

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiToken
from controlplane.platform.accounts.roles import person
from runs.api import shapes
from runs.api.access import Router, existing
from runs.api.shapes import Cursor, Id, ItemResponse, Limit, PageResponse, ResponseBody

router = Router(tags=["tokens"])


class Me(ResponseBody):
    user: str
    """The name of the token's user."""
    role: str
    """The user's role: `viewer`, `operator` or `admin`."""
    token: str
    """The token's name, not the token itself."""
    scope: str
    """The token's scope within the role: `read`, `operate` or `admin`."""
    expires_at: str
    """When the token expires."""


@router.get("me", response=Me)
def me(request: HttpRequest) -> Any:
    """Read the token of this request."""
    token: ApiToken = request.auth  # type: ignore[attr-defined]  # set by the guard
    names = {"user": token.user.get_username(), "role": token.user.role, "token": token.name}
    return {**names, "scope": token.scope, "expires_at": token.expires_at.isoformat()}


@router.get("tokens", response=PageResponse)
def tokens(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List API tokens. Your valid ones; with a token that may administer, everybody's. Never the tokens themselves."""
    valid = api_tokens.valid(api_tokens.seen_by(person(request))).select_related("user")
    return shapes.page(valid, _token, cursor, limit)


@router.post("tokens/{int:token_id}/revoke", response=ItemResponse)
def revoke(request: HttpRequest, token_id: Id) -> Any:
    """Revoke a token. It is refused at once. It may be the token of this request."""
    row = existing(api_tokens.seen_by(person(request)).select_related("user"), token_id, "You have no token")
    api_tokens.revoke(ApiToken.objects.filter(pk=row.pk), person(request))
    row.refresh_from_db()
    return {"item": _token(row)}


def _token(row: ApiToken) -> dict[str, Any]:
    same = shapes.columns(row, "name", "scope", "created_at", "expires_at", "used_at", "revoked_at")
    return {"id": row.pk, "user": row.user.get_username(), **same}
