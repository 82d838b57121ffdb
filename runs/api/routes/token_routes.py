"""Whose token this is, and the tokens there are. A program makes none: a token that was stolen must end."""

from __future__ import annotations

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
    """Whose token it is, by name."""
    role: str
    """What this user may do: `viewer`, `operator` or `admin`."""
    token: str
    """What the token is called; not the token itself."""
    scope: str
    """What the token may do of that: `read`, `operate` or `admin`."""
    expires_at: str
    """When the token stops working."""


@router.get("me", response=Me)
def me(request: HttpRequest) -> Any:
    """Read whose token this is."""
    token: ApiToken = request.auth  # type: ignore[attr-defined]  # set by the guard
    return {
        "user": token.user.get_username(),
        "role": token.user.role,
        "token": token.name,
        "scope": token.scope,
        "expires_at": token.expires_at.isoformat(),
    }


@router.get("tokens", response=PageResponse)
def tokens(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List API tokens. Your valid ones; with a token that may administer, everybody's. No answer has a token itself."""
    seen = api_tokens.valid(api_tokens.seen_by(person(request))).select_related("user")
    return shapes.page(seen, _token, cursor, limit)


@router.post("tokens/{int:token_id}/revoke", response=ItemResponse)
def revoke(request: HttpRequest, token_id: Id) -> Any:
    """Revoke a token. It is refused from then on, this one too."""
    tokens = api_tokens.seen_by(person(request)).select_related("user")
    row = existing(tokens.filter(pk=token_id).first(), f"You have no token {token_id}.")
    api_tokens.revoke(ApiToken.objects.filter(pk=row.pk), person(request))
    row.refresh_from_db()
    return {"item": _token(row)}


def _token(row: ApiToken) -> dict[str, Any]:
    same = shapes.columns(row, "name", "scope", "created_at", "expires_at", "used_at", "revoked_at")
    return {"id": row.pk, "user": row.user.get_username(), **same}
