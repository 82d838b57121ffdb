"""Personal API tokens. Each acts for its user, within its scope and the user's current role.

Only the SHA-256 hash is stored. `ApiTokenAct` records that a token was created, used for a change, or revoked.
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
MAX_NAME_LENGTH = 80
DAYS = (7, 30, 90, 365)
"""Lifetimes to choose from; every token expires."""
MAX_PER_USER = 50
MAX_ACTS = 1000
FORGOTTEN_AFTER = timedelta(days=90)
"""Time after which expired and revoked tokens are deleted, with their acts."""
MIN_USE_INTERVAL = timedelta(minutes=1)
"""Minimum time between updates of `used_at`, so that not every read request writes to the database."""
SCOPES: dict[str, tuple[str, ...]] = {
    Role.VIEWER: (ApiScope.READ,),
    Role.OPERATOR: (ApiScope.READ, ApiScope.OPERATE),
    Role.ADMIN: (ApiScope.READ, ApiScope.OPERATE, ApiScope.ADMIN),
}
"""Scopes that each role may use. A scope includes those before it."""


class TooMany(Exception):
    """Refusal to create a token for a user who already has MAX_PER_USER valid ones."""


def make(user: User, name: str, scope: str, *, days: int) -> tuple[ApiToken, str]:
    """Create a token and return it with its plaintext, which is not stored. Raises TooMany if the user has the maximum
    number of valid tokens."""
    plaintext = PREFIX + secrets.token_urlsafe(32)
    now = timezone.now()
    with transaction.atomic():
        User.objects.select_for_update().get(pk=user.pk)  # two pages at once must not both take the last place
        if valid_tokens(user.api_tokens.all()).count() >= MAX_PER_USER:
            raise TooMany(f"You already have {MAX_PER_USER} valid tokens, the maximum. Revoke one first.")
        row = ApiToken.objects.create(
            user=user, name=name, token_hash=hashed(plaintext), scope=scope, expires_at=now + timedelta(days=days)
        )
        ApiTokenAct.objects.create(token=row, at=now, by=user, what="made")
    return row, plaintext


def find(plaintext: str) -> ApiToken | None:
    """Find the valid token with this plaintext, record its use, and return it with its user, or None if there is
    none."""
    if not plaintext.startswith(PREFIX):
        return None
    row = valid_tokens(ApiToken.objects.filter(token_hash=hashed(plaintext))).select_related("user").first()
    now = timezone.now()
    if row is not None and (row.used_at is None or now - row.used_at > MIN_USE_INTERVAL):
        ApiToken.objects.filter(pk=row.pk).update(used_at=now)
    return row


def allows(token: ApiToken, scope: str) -> bool:
    """Return whether the token has this scope now. Lowering a user's role restricts their tokens at once."""
    order = list(ApiScope)
    return scope in SCOPES[token.user.role] and order.index(ApiScope(scope)) <= order.index(ApiScope(token.scope))


def acting(token: ApiToken) -> User:
    """Return an unsaved copy of the token's user for one request, with a role no higher than the token's scope."""
    user = copy(token.user)
    roles = list(SCOPES)
    lowest_role = next(role for role in roles if token.scope in SCOPES[role])
    user.role = min(user.role, lowest_role, key=roles.index)
    return user


def valid_tokens(tokens: QuerySet[ApiToken]) -> QuerySet[ApiToken]:
    return tokens.filter(revoked_at=None, expires_at__gt=timezone.now(), user__is_active=True)


def seen_by(user: User) -> QuerySet[ApiToken]:
    """Return the tokens that this user may see: all for an admin, otherwise the user's own ones."""
    tokens = ApiToken.objects.all()
    return tokens if user.may_administer else tokens.filter(user=user)


def revoke(tokens: QuerySet[ApiToken], by: User) -> int:
    """Revoke those of the tokens that aren't revoked yet, and return their number."""
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
    cutoff = now - FORGOTTEN_AFTER
    ApiToken.objects.filter(Q(expires_at__lt=cutoff) | Q(revoked_at__lt=cutoff)).delete()


def note(token: ApiToken, request: str, *, status: int, address: str) -> None:
    """Record a request for a change that was made with this token, with its response's status."""
    ApiTokenAct.objects.create(
        token=token, at=timezone.now(), by=token.user, what=request[:200], status=status, address=address
    )
    acts = ApiTokenAct.objects.filter(token=token).order_by("-pk")
    if (oldest := acts.values_list("pk", flat=True)[MAX_ACTS : MAX_ACTS + 1].first()) is not None:
        acts.filter(Q(pk__lte=oldest), ~Q(what="made")).delete()
