"""Personal tokens for the API. Each acts for its user, within its scope and the user's present role.

Only the SHA-256 is stored. `ApiTokenAct` records that a token was made, used for a change, or revoked.
"""

import secrets
from copy import copy
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from controlplane.platform.accounts.models import ApiScope, ApiToken, ApiTokenAct, Role, User
from controlplane.platform.activity.recording import record
from controlplane.platform.http.tokens import hashed

PREFIX = "grpo_"
LONGEST_NAME = 80
DAYS = (7, 30, 90, 365)
"""How long a token may be valid: every token expires."""
MAX_PER_USER = 50
KEPT_ACTS = 1000
"""Most acts kept per token; the newest stay."""
FORGOTTEN_AFTER = timedelta(days=90)
"""How long expired and revoked tokens are kept, with their acts."""
USED_EVERY = timedelta(minutes=1)
"""How often `used_at` is written at most, so that reading doesn't write to the database each time."""
SCOPES: dict[str, tuple[str, ...]] = {
    Role.VIEWER: (ApiScope.READ,),
    Role.OPERATOR: (ApiScope.READ, ApiScope.OPERATE),
    Role.ADMIN: (ApiScope.READ, ApiScope.OPERATE, ApiScope.ADMIN),
}
"""The scopes within each role. A scope includes those before it."""


class TooMany(Exception):
    """A refusal to make more valid tokens for a user than are allowed."""


def make(user: User, name: str, scope: str, *, days: int) -> tuple[ApiToken, str]:
    """Make a token. Its text is only in the return value. Raises TooMany."""
    text = PREFIX + secrets.token_urlsafe(32)
    now = timezone.now()
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two pages at once must not both take the last place
        if valid(user.api_tokens.all()).count() >= MAX_PER_USER:
            raise TooMany(f"You have {MAX_PER_USER} valid tokens, which is the most. Revoke one first.")
        row = ApiToken.objects.create(
            user=user, name=name, token_hash=hashed(text), scope=scope, expires_at=now + timedelta(days=days)
        )
        ApiTokenAct.objects.create(token=row, at=now, by=user, what="made")
    return row, text


def find(text: str) -> ApiToken | None:
    """Return the valid token with this text, with its user, or None. Records its use."""
    if not text.startswith(PREFIX):
        return None
    row = valid(ApiToken.objects.filter(token_hash=hashed(text))).select_related("user").first()
    now = timezone.now()
    if row is not None and (row.used_at is None or now - row.used_at > USED_EVERY):
        ApiToken.objects.filter(pk=row.pk).update(used_at=now)
    return row


def allows(token: ApiToken, scope: str) -> bool:
    """Check whether the token has this scope now. A lowered role lowers its user's tokens at once."""
    order = list(ApiScope)
    return scope in SCOPES[token.user.role] and order.index(ApiScope(scope)) <= order.index(ApiScope(token.scope))


def acting(token: ApiToken) -> User:
    """Return a copy of the token's user for one request, never saved, whose role is no higher than the token's
    scope."""
    user = copy(token.user)
    roles = list(SCOPES)
    lowest = next(role for role in roles if token.scope in SCOPES[role])
    user.role = min(user.role, lowest, key=roles.index)
    return user


def valid(tokens: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    return tokens.filter(revoked_at=None, expires_at__gt=timezone.now(), user__is_active=True)


def seen_by(user: User) -> QuerySet[ApiToken]:
    """Return a user's own tokens; for admins everybody's."""
    tokens = ApiToken.objects.all()
    return tokens if user.may_administer else tokens.filter(user=user)


def revoke(tokens: QuerySet[ApiToken], by: User) -> int:
    """Revoke the tokens that aren't revoked yet, and return their number."""
    now = timezone.now()
    with transaction.atomic():
        rows = list(tokens.select_for_update().filter(revoked_at=None))
        ApiToken.objects.filter(pk__in=[row.pk for row in rows]).update(revoked_at=now)
        ApiTokenAct.objects.bulk_create(ApiTokenAct(token=row, at=now, by=by, what="revoked") for row in rows)
        for row in rows:
            record(row, "Revoked")
    return len(rows)


def forget(now: datetime) -> None:
    """Delete tokens that expired or were revoked long ago, with their acts."""
    before = now - FORGOTTEN_AFTER
    ApiToken.objects.filter(Q(expires_at__lt=before) | Q(revoked_at__lt=before)).delete()


def note(token: ApiToken, request: str, *, status: int, address: str) -> None:
    """Record a request for a change by this token, and the status of its answer."""
    ApiTokenAct.objects.create(
        token=token, at=timezone.now(), by=token.user, what=request[:200], status=status, address=address[:64]
    )
    acts = ApiTokenAct.objects.filter(token=token).order_by("-pk")
    if (oldest := acts.values_list("pk", flat=True)[KEPT_ACTS : KEPT_ACTS + 1].first()) is not None:
        acts.filter(Q(pk__lte=oldest), ~Q(what="made")).delete()
