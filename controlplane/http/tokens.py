"""Tokens of hosts and attempts: HMACs of the server's key, so nothing is stored and a resend carries the same one."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings


def attempt_token(attempt_id: str) -> str:
    """What a supervisor and a reaper show for one attempt."""
    return _sign(f"attempt:{attempt_id}")


def host_token(name: str) -> str:
    """What a host's worker shows for its announcements and inspections."""
    return _sign(f"host:{name}")


def attempt_token_fits(attempt_id: str, shown: str) -> bool:
    return _same(attempt_token(attempt_id), shown)


def host_token_fits(name: str, shown: str) -> bool:
    return _same(host_token(name), shown)


def _sign(text: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def _same(expected: str, shown: str) -> bool:
    # compare_digest refuses str outside ASCII, and a header may hold anything.
    return hmac.compare_digest(expected.encode(), shown.encode("utf-8", "surrogateescape"))
