"""One-time join codes, created by an operator or for a requested machine, and used up by the first machine."""

import secrets
from datetime import datetime, timedelta

from django.utils import timezone

from controlplane.catalogue.joining.models import JoinCode
from controlplane.platform.accounts.models import User
from controlplane.platform.http.tokens import hashed

VALID_FOR = timedelta(hours=1)
FORGOTTEN_AFTER = timedelta(days=7)


def create(host_name: str, *, by: User | None, code: str = "") -> tuple[JoinCode, str]:
    """Create a code for a host of this name ("" for any name), and return its row and the code, of which only a hash is
    stored. `code` is a secret that the caller can derive again, by default a random one."""
    now = timezone.now()
    code = code or secrets.token_hex(20)  # hex, since a leading dash would be an option of the command
    row = JoinCode.objects.create(
        code_sha256=hashed(code), host_name=host_name, created_by=by, expires_at=now + VALID_FOR
    )
    return row, code


def extend(code_id: int) -> None:
    JoinCode.objects.filter(pk=code_id, used_at=None).update(expires_at=timezone.now() + VALID_FOR)


def revoke(code_id: int) -> bool:
    """Revoke a code, and return whether it was still unused."""
    return bool(JoinCode.objects.filter(pk=code_id, used_at=None).update(expires_at=timezone.now()))


def find(code: str) -> JoinCode | None:
    return JoinCode.objects.select_related("created_by").filter(code_sha256=hashed(code)).first()


def problem(row: JoinCode | None) -> str:
    """Explain why a code can't be used; return "" if it can."""
    if row is None:
        return "This join code is unknown. Copy the whole command from the Hardware page."
    if row.used_at is not None:
        return f"This join code was used by the host {row.used_by}. Each code is for one machine."
    if row.expires_at <= timezone.now():
        return "This join code has expired."
    return ""


def use_up(row: JoinCode, host_name: str) -> bool:
    """Mark a code as used with one conditional UPDATE; return False if another machine was first."""
    unused_codes = JoinCode.objects.filter(pk=row.pk, used_at=None, expires_at__gt=timezone.now())
    return bool(unused_codes.update(used_at=timezone.now(), used_by=host_name))


def forget(now: datetime) -> None:
    """Delete codes that expired long ago; until then, pages show whether they were used."""
    JoinCode.objects.filter(expires_at__lt=now - FORGOTTEN_AFTER).delete()


def command(url: str, code: str) -> str:
    """Return the command to run on the new machine, in a copy of the source."""
    return f"python3 -m workers.host.join {url.rstrip('/')} {code}"
