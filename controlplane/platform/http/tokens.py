"""Tokens of attempts and keys of runs, derived as HMACs with the server's key: nothing is stored, and repeated requests
get the same token.

Random tokens, which people's programs and hosts use, are stored `hashed`.
"""

import hashlib
import hmac

from django.conf import settings


def attempt_token(attempt_id: str) -> str:
    """Return the token that an attempt's supervisor and reaper use."""
    return _sign(f"attempt:{attempt_id}")


def gateway_key(run_id: str) -> str:
    """Return the key of a run's endpoint for agents: 128 bits, so that it is short enough to copy."""
    return f"sk-{_sign(f'gateway:{run_id}')[:32]}"


def machine_code(host_name: str) -> str:
    """Return the join code of a machine that is requested from an engine. Repeated requests get the same code."""
    return _sign(f"machine:{host_name}")[:40]


def attempt_token_fits(attempt_id: str, presented: str) -> bool:
    # compare_digest rejects non-ASCII str, and a header may contain anything.
    expected = attempt_token(attempt_id).encode()
    return hmac.compare_digest(expected, presented.encode("utf-8", "surrogateescape"))


def hashed(secret: str) -> str:
    """Return the hash under which a random secret is stored. With 160 random bits or more, a plain hash is enough."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _sign(message: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), message.encode(), hashlib.sha256).hexdigest()
