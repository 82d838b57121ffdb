"""Tokens of hosts: random, stored as hashes, so that revoking one ends it at once."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from controlplane.catalogue.joining.models import HostCredential
from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import hashed

NOTED_EVERY = timedelta(minutes=1)
"""An unchanged host announces itself every few seconds; its last use is stored this often."""


class HostNameTaken(Exception):
    """Another machine has joined under this name."""


@dataclass(frozen=True)
class Issued:
    """Secrets that are nowhere else."""

    credential: HostCredential
    token: str
    redis_password: str


def issue(name: str, *, by: User | None = None, embedded: bool = False) -> Issued:
    """Credentials for a host that has none. Raises NameTaken."""
    token, password = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    with transaction.atomic():
        if active(name) is not None:
            raise HostNameTaken(f"A host named {name} has joined already.")
        credential = HostCredential.objects.create(
            host_name=name,
            token_sha256=hashed(token),
            redis_sha256="" if embedded else hashed(password),
            embedded=embedded,
            created_by=by,
        )
    return Issued(credential, token, password)


def embedded_token(name: str, present: str) -> str | None:
    """A new token for the host that `up` runs beside the control plane, which needs no code to join. None if `present`
    is valid. Raises HostNameTaken."""
    if fits(name, present.strip()):
        return None
    with transaction.atomic():
        before = active(name)
        if before is not None and not before.embedded:
            raise HostNameTaken(
                f"Another machine has joined as {name}. Set GRPO_HOST_NAME to another name for this one; to replace "
                "that machine, start under the other name and revoke it on the Hardware page."
            )
        # Deleted, not revoked: revoking ends the runs of a host, and this is the same machine.
        HostCredential.objects.filter(host_name=name, revoked_at=None).delete()
        return issue(name, embedded=True).token


def active(name: str) -> HostCredential | None:
    """A host's credentials, unless they were revoked."""
    return HostCredential.objects.filter(host_name=name, revoked_at=None).first()


def fitting(name: str, token: str) -> HostCredential | None:
    """The credentials that this token belongs to, if they are this host's and not revoked."""
    return HostCredential.objects.filter(host_name=name, token_sha256=hashed(token), revoked_at=None).first()


def fits(name: str, token: str) -> bool:
    return bool(token) and fitting(name, token) is not None


def was_revoked(name: str, token: str) -> bool:
    """True if this was the host's token."""
    return HostCredential.objects.filter(host_name=name, token_sha256=hashed(token)).exclude(revoked_at=None).exists()


def revoke(name: str, by: User | None) -> bool:
    """End a host's token at once. False: it has none. Its user in Redis is ended by `host_redis`."""
    return bool(
        HostCredential.objects.filter(host_name=name, revoked_at=None).update(revoked_at=timezone.now(), revoked_by=by)
    )


def revoked_since_dispatch() -> Exists:
    """For a query of attempts: whether their host was revoked after they were sent there. A host that joins again under
    its old name gets new tokens, and those of earlier attempts stay ended."""
    return Exists(
        HostCredential.objects.filter(host_name=OuterRef("host__name"), revoked_at__gte=OuterRef("dispatched_at"))
    )


def note_use(credential: HostCredential, *, version: str, skew_s: float | None, refusal: str = "") -> None:
    """Store what a host says of itself, if it is news."""
    now = timezone.now()
    said = (version[:60], None if skew_s is None else round(skew_s), refusal)
    known = (credential.version, credential.clock_skew_s, credential.refusal)
    steady = said[0] == known[0] and said[2] == known[2] and _close(said[1], known[1])
    if steady and credential.last_used_at and timedelta(0) <= now - credential.last_used_at < NOTED_EVERY:
        return
    HostCredential.objects.filter(pk=credential.pk).update(
        last_used_at=now, version=said[0], clock_skew_s=said[1], refusal=said[2]
    )


def note_copy(credential: HostCredential) -> None:
    """Another machine came with a host's token."""
    HostCredential.objects.filter(pk=credential.pk).update(copied_at=timezone.now())


def _close(skew: float | None, before: float | None) -> bool:
    return skew == before if skew is None or before is None else abs(skew - before) < 5
