"""One-time codes for joining: made for an operator or a machine's provider, and used up by the first machine."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta

from django.utils import timezone

from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import hashed

VALID_FOR = timedelta(hours=1)
FORGOTTEN_AFTER = timedelta(days=7)


def make(host_name: str, *, by: User | None, code: str = "") -> tuple[JoinCode, str]:
    """A code for a host of this name, or of any if it is "". The code itself is only in the return value.

    `code`: a secret that the caller can derive again.
    """
    now = timezone.now()
    code = code or secrets.token_hex(20)  # none begins with a dash, which would be an option of the command
    row = JoinCode.objects.create(
        code_sha256=hashed(code), host_name=host_name, created_by=by, expires_at=now + VALID_FOR
    )
    return row, code


def prolong(code_id: int) -> None:
    """Extend a code that nobody has used, even if it has expired."""
    JoinCode.objects.filter(pk=code_id, used_at=None).update(expires_at=timezone.now() + VALID_FOR)


def withdraw(code_id: int) -> bool:
    """Let nobody in with it any more. False: it has been used."""
    return bool(JoinCode.objects.filter(pk=code_id, used_at=None).update(expires_at=timezone.now()))


def find(code: str) -> JoinCode | None:
    return JoinCode.objects.select_related("created_by").filter(code_sha256=hashed(code)).first()


def problem(row: JoinCode | None) -> str:
    """Why a code lets nobody in, or ""."""
    if row is None:
        return "This join code is wrong. Copy the whole command from the Hardware page."
    if row.used_at is not None:
        return f"This join code has been used, by the host {row.used_by}. Each code lets one machine in."
    if row.expires_at <= timezone.now():
        return "This join code has expired."
    return ""


def use_up(row: JoinCode, host_name: str) -> bool:
    """One conditional UPDATE decides between two machines. False: the other one was first."""
    unused = JoinCode.objects.filter(pk=row.pk, used_at=None, expires_at__gt=timezone.now())
    return bool(unused.update(used_at=timezone.now(), used_by=host_name))


def forget(now: datetime) -> None:
    """Delete codes, used or not, long after they could be used; until then pages say what became of them."""
    JoinCode.objects.filter(expires_at__lt=now - FORGOTTEN_AFTER).delete()


def command(url: str, code: str) -> str:
    """The command to run on the new machine, in a copy of the source."""
    return f"python3 -m workers.host.join {url.rstrip('/')} {code}"
