"""Tokens of hosts: random, and looked up by hash at each request, so that revoking one takes effect at once."""

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from controlplane.catalogue.joining.models import HostCredential
from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import hashed

NOTE_INTERVAL = timedelta(minutes=1)
"""Minimum interval between stored uses, since hosts announce themselves every few seconds, mostly unchanged."""


class HostNameTaken(Exception):
    """Refusal of a name under which another machine has joined."""


@dataclass(frozen=True)
class Issued:
    """A host's new secrets, of which only hashes are stored."""

    credential: HostCredential
    token: str
    redis_password: str


def issue(name: str, *, by: User | None = None, embedded: bool = False) -> Issued:
    """Issue credentials to a host that has none. Raises HostNameTaken if a host has this name, or one that differs only
    in case: nobody could tell the two apart."""
    token, password = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    with transaction.atomic():
        if existing := _of_any_case(name):
            raise HostNameTaken(f"A host named {existing.host_name} has already joined.")
        credential = HostCredential.objects.create(
            host_name=name,
            token_sha256=hashed(token),
            redis_sha256="" if embedded else hashed(password),
            embedded=embedded,
            created_by=by,
        )
    return Issued(credential, token, password)


def embedded_token(name: str, current_token: str) -> str | None:
    """Issue a token, without a join code, to the host that `up` runs next to the control plane; return None if its
    `current_token` is valid. Raises HostNameTaken if another machine has joined under this name."""
    if is_valid(name, current_token.strip()):
        return None
    with transaction.atomic():
        credential = _of_any_case(name)
        if credential is not None and not credential.embedded:
            raise HostNameTaken(
                f"Another machine has joined as {credential.host_name}. Set GRPO_HOST_NAME to another name for this "
                "machine; to replace that one, start under the other name and revoke it on the Hardware page."
            )
        # Deleted, not revoked: revoking ends the runs of a host, and this is the same machine.
        if credential is not None:
            credential.delete()
        return issue(name, embedded=True).token


def active(name: str) -> HostCredential | None:
    """Find a host's credentials that aren't revoked."""
    return _active(name).first()


def matching(name: str, token: str) -> HostCredential | None:
    """Find a host's credentials with this token, unless they were revoked."""
    return _active(name).filter(token_sha256=hashed(token)).first()


def is_valid(name: str, token: str) -> bool:
    return bool(token) and matching(name, token) is not None


def was_revoked(name: str, token: str) -> bool:
    """Return whether this is a revoked token of the host."""
    return HostCredential.objects.filter(host_name=name, token_sha256=hashed(token)).exclude(revoked_at=None).exists()


def revoke(name: str, by: User | None) -> bool:
    """Revoke a host's token, and return whether it had one. To delete its user in Redis, call `host_redis.delete`."""
    return bool(_active(name).update(revoked_at=timezone.now(), revoked_by=by))


def revoked_since_dispatch() -> Exists:
    """Return a query expression for attempts whose host was revoked after they were dispatched. If a host joins again
    under its old name, the tokens of earlier attempts stay revoked."""
    return Exists(
        HostCredential.objects.filter(host_name=OuterRef("host__name"), revoked_at__gte=OuterRef("dispatched_at"))
    )


def note_use(credential: HostCredential, *, version: str, skew_s: float | None, refusal: str = "") -> None:
    """Store that a host has announced itself, unless the last such use is recent and nothing has changed."""
    now = timezone.now()
    version, skew = version[:60], None if skew_s is None else round(skew_s)
    same_report = (version, refusal) == (credential.version, credential.refusal)
    is_steady = same_report and _is_close(skew, credential.clock_skew_s)
    if is_steady and credential.last_used_at and timedelta(0) <= now - credential.last_used_at < NOTE_INTERVAL:
        return
    HostCredential.objects.filter(pk=credential.pk).update(
        last_used_at=now, version=version, clock_skew_s=skew, refusal=refusal
    )


def note_copy(credential: HostCredential) -> None:
    """Store that another machine has just used a host's token."""
    HostCredential.objects.filter(pk=credential.pk).update(copied_at=timezone.now())


def _of_any_case(name: str) -> HostCredential | None:
    """Find the unrevoked credentials of a host whose name differs at most in case."""
    return HostCredential.objects.filter(host_name__iexact=name, revoked_at=None).first()


def _active(name: str) -> QuerySet[HostCredential]:
    return HostCredential.objects.filter(host_name=name, revoked_at=None)


def _is_close(skew: float | None, previous_skew: float | None) -> bool:
    return skew == previous_skew if skew is None or previous_skew is None else abs(skew - previous_skew) < 5
