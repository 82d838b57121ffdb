"""Tokens of attempts and keys of runs: HMACs with the server's key, so that nothing is stored and a resend repeats
them.

Random tokens, of people's programs and of hosts, are stored `hashed`.
"""

import hashlib
import hmac

from django.conf import settings


def attempt_token(attempt_id: str) -> str:
    """Return the token of an attempt's supervisor and reaper."""
    return _sign(f"attempt:{attempt_id}")


def gateway_key(run_id: str) -> str:
    """Return the key of a run's endpoint for agents: 128 bits, short enough to copy."""
    return f"sk-{_sign(f'gateway:{run_id}')[:32]}"


def machine_code(host_name: str) -> str:
    """Return the join code of a machine that is requested from an engine: the same if the request is repeated."""
    return _sign(f"machine:{host_name}")[:40]


def attempt_token_fits(attempt_id: str, presented: str) -> bool:
    # compare_digest rejects non-ASCII str, and a header may contain anything.
    expected = attempt_token(attempt_id).encode()
    return hmac.compare_digest(expected, presented.encode("utf-8", "surrogateescape"))


def hashed(secret: str) -> str:
    """Return the stored form of a random secret. With 256 random bits a plain hash is enough: it can't be guessed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _sign(text: str) -> str:
    return hmac.new(settings.SECRET_KEY.encode(), text.encode(), hashlib.sha256).hexdigest()
