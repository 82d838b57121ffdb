"""One-time sign-in links, for the first start and for invitations. The first person who opens a link uses it up."""

import secrets
from datetime import timedelta
from urllib.parse import quote

from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from controlplane.platform.accounts.models import SignInLink, User
from controlplane.platform.http.tokens import hashed

VALID_FOR = timedelta(minutes=10)
INVITATION_VALID_FOR = timedelta(days=3)


def make_link(
    user: User, base_url: str, *, valid_for: timedelta = VALID_FOR, asks_first: bool = False, to: str = ""
) -> str:
    """Create a link below `base_url` (http://127.0.0.1:8000) that signs `user` in and leads to the page `to`, and
    return it. Only the hash of its token is stored."""
    now = timezone.now()
    SignInLink.objects.filter(Q(expires_at__lt=now) | Q(used_at__isnull=False)).delete()
    token = secrets.token_urlsafe(32)
    SignInLink.objects.create(user=user, token_hash=hashed(token), expires_at=now + valid_for, asks_first=asks_first)
    address = base_url.rstrip("/") + reverse("sign_in_once", args=[token])
    return f"{address}?next={quote(to)}" if to else address


def invite(user: User, base_url: str) -> str:
    """Create an invitation link and return it. The user's older unused links stop working."""
    user.sign_in_links.all().delete()
    return make_link(user, base_url, valid_for=INVITATION_VALID_FOR, asks_first=True)


def peek(token: str) -> SignInLink | None:
    """Return the token's link without using it up, or None if it no longer works."""
    return _usable(token).select_related("user").first()


def use(token: str) -> User | None:
    """Use up the link and return its user, or None if it is unknown, used or expired, or its user is disabled.

    Of concurrent requests, one conditional UPDATE lets only the first succeed.
    """
    if not _usable(token).update(used_at=timezone.now()):
        return None
    return SignInLink.objects.select_related("user").get(token_hash=hashed(token)).user


def _usable(token: str) -> QuerySet[SignInLink]:
    return SignInLink.objects.filter(
        token_hash=hashed(token), used_at__isnull=True, expires_at__gt=timezone.now(), user__is_active=True
    )
