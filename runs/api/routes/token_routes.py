"""API tokens: read, list and revoke. Programs can't create tokens, so that a stolen token expires."""

from typing import Any

from django.http import HttpRequest

from controlplane.platform.accounts import api_tokens
from controlplane.platform.accounts.models import ApiToken
from controlplane.platform.accounts.roles import person
from runs.api import shapes
from runs.api.access import Router, row_or_404
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
    """The token's scope: `read`, `operate` or `admin`. The role may limit it further."""
    expires_at: str
    """When the token expires."""


@router.get("me", response=Me)
def me(request: HttpRequest) -> Any:
    """Read the user, role, scope and expiry of this request's token."""
    token: ApiToken = request.auth  # type: ignore[attr-defined]  # set by Bearer
    names = {"user": token.user.get_username(), "role": token.user.role, "token": token.name}
    return {**names, "scope": token.scope, "expires_at": token.expires_at.isoformat()}


@router.get("tokens", response=PageResponse)
def tokens(request: HttpRequest, cursor: Cursor = "", limit: Limit = 50) -> Any:
    """List valid API tokens. Admin tokens list those of all users, others only your own. The tokens are not shown."""
    valid_tokens = api_tokens.valid_tokens(api_tokens.seen_by(person(request))).select_related("user")
    return shapes.page(valid_tokens, _token, cursor, limit)


@router.post("tokens/{int:token_id}/revoke", response=ItemResponse)
def revoke(request: HttpRequest, token_id: Id) -> Any:
    """Revoke a token. It stops working at once. The request's own token can be revoked too."""
    row = row_or_404(api_tokens.seen_by(person(request)).select_related("user"), token_id, "You have no token")
    api_tokens.revoke(ApiToken.objects.filter(pk=row.pk), person(request))
    row.refresh_from_db()
    return {"item": _token(row)}


def _token(row: ApiToken) -> dict[str, Any]:
    fields = shapes.columns(row, "name", "scope", "created_at", "expires_at", "used_at", "revoked_at")
    return {"id": row.pk, "user": row.user.get_username(), **fields}
