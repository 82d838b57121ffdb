"""Tokens of attempts and keys of runs: HMACs with the server's key, so nothing is stored, and a resend has the same
one. Random tokens, of people's programs and of hosts, are stored `hashed`."""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings


def attempt_token(attempt_id: str) -> str:
    """The token of an attempt's supervisor and reaper."""
    return _sign(f"attempt:{attempt_id}")


def gateway_key(run_id: str) -> str:
    """The key of a run's endpoint for agents: 128 bits, as a person copies it."""
    return f"sk-{_sign(f'gateway:{run_id}')[:32]}"


def machine_code(host_name: str) -> str:
    """The join code of a machine that an engine is asked for: asked again after an answer that was lost, the machine
    gets the same one."""
    return _sign(f"machine:{host_name}")[:40]


def attempt_token_fits(attempt_id: str, presented: str) -> bool:
    return _equal(attempt_token(attempt_id), presented)


def hashed(secret: str) -> str:
    """How a random secret is stored. With 256 random bits there is nothing to guess, so nothing to slow down."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _sign(text: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()


def _equal(expected: str, presented: str) -> bool:
    # compare_digest rejects non-ASCII str, and a header may contain anything.
    return hmac.compare_digest(expected.encode(), presented.encode("utf-8", "surrogateescape"))
