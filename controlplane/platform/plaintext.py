"""Refuses addresses over which passwords and tokens would travel unencrypted, or that ask for no password.

Standard library only: the settings and manage.py use it before Django is loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from controlplane.platform.environment import EnvironmentUnusable, one_of
from workers.contract.wire.joining import is_loopback

ALLOW = "CONTROLPLANE_PLAINTEXT"
REDIS_SHAPE = "rediss://user:password@host:6379/0"
ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})


def encrypted_redis(variable: str, *, with_password: bool = True) -> str:
    """The variable's address of Redis. Raises EnvironmentUnusable if it is open to whoever is on the network.

    `with_password`: it is the control plane's own, otherwise the one to which each host adds its user.
    """
    url = os.environ.get(variable, "")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        password = bool(parts.password) or "ssl_certfile" in parse_qs(parts.query)
    except ValueError:
        raise EnvironmentUnusable(f"{variable} can't be read. It looks like {REDIS_SHAPE}.") from None
    schemes = ("rediss", "redis", *(["unix"] if with_password else []))
    if url and parts.scheme not in schemes:
        raise EnvironmentUnusable(f"{variable} must begin with {' or '.join(f'{name}://' for name in schemes)}.")
    if not url or parts.scheme == "unix" or is_loopback(host or "localhost"):
        return url
    lacks = [] if parts.scheme == "rediss" else ["TLS"]
    if with_password and not password:
        lacks.append("a password")
    _refuse(variable, host, lacks, "Use rediss:// with a password")
    return url


def refuse_open_postgresql(variable: str, host: str, password: str, options: Mapping[str, object]) -> None:
    """`options`: of the address, as libpq knows them. Raises EnvironmentUnusable."""
    far = [part for part in host.split(",") if part and not part.startswith("/") and not is_loopback(part)]
    if not far:
        return
    sslmode = str(options.get("sslmode") or os.environ.get("PGSSLMODE", ""))
    lacks = [] if sslmode in ENCRYPTED else ["TLS"]
    if not (password or "sslcert" in options or _knows_password()):
        lacks.append("a password")
    _refuse(variable, far[0], lacks, "Add ?sslmode=verify-full (and sslrootcert) and a password")


def _knows_password() -> bool:
    """True if libpq may find a password where it looks by itself."""
    file = os.environ.get("PGPASSFILE") or Path.home() / ".pgpass"
    return bool(os.environ.get("PGPASSWORD")) or Path(file).exists()


def _refuse(variable: str, host: str, lacks: list[str], fix: str) -> None:
    if lacks and one_of(ALLOW, ("refuse", "allow")) != "allow":
        raise EnvironmentUnusable(
            f"{variable} leads to {host} without {' and '.join(lacks)}: whoever is on that network can read and change "
            f"what runs on the hosts. {fix}. If the network is private and you want it so, set {ALLOW}=allow too."
        )
