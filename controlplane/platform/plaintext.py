"""Refusal of server addresses without encryption or without a password.

Standard library only: the settings and manage.py use it before Django is loaded.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from controlplane.platform.environment import EnvironmentUnusable, one_of
from workers.contract.wire.joining import is_loopback

ALLOW = "CONTROLPLANE_PLAINTEXT"
REDIS_URL_FORMAT = "rediss://user:password@host:6379/0"
ENCRYPTED = frozenset({"require", "verify-ca", "verify-full"})


def encrypted_redis(variable: str, *, with_password: bool = True) -> str:
    """Return the Redis address in a variable. Raises EnvironmentUnusable if others on the network could use the server
    or read its traffic.

    `with_password` says whether the address needs a password, as the control plane's own does. Hosts add their own
    users to theirs.
    """
    url = os.environ.get(variable, "")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        has_password = bool(parts.password) or "ssl_certfile" in parse_qs(parts.query)
    except ValueError:
        raise EnvironmentUnusable(f"{variable} can't be parsed. It should look like {REDIS_URL_FORMAT}.") from None
    schemes = ("rediss", "redis", *(["unix"] if with_password else []))
    if url and parts.scheme not in schemes:
        raise EnvironmentUnusable(f"{variable} must begin with {' or '.join(f'{name}://' for name in schemes)}.")
    if not url or parts.scheme == "unix" or is_loopback(host or "localhost"):
        return url
    missing_protection = [] if parts.scheme == "rediss" else ["TLS"]
    if with_password and not has_password:
        missing_protection.append("a password")
    _refuse(variable, host, missing_protection, "Use rediss:// with a password")
    return url


def refuse_open_postgresql(variable: str, host: str, password: str, options: Mapping[str, object]) -> None:
    """Raise EnvironmentUnusable if others on the network could use a PostgreSQL server or read its traffic.

    `options` are libpq's options in the address.
    """
    remote_hosts = [part for part in host.split(",") if part and not part.startswith("/") and not is_loopback(part)]
    if not remote_hosts:
        return
    sslmode = str(options.get("sslmode") or os.environ.get("PGSSLMODE", ""))
    missing_protection = [] if sslmode in ENCRYPTED else ["TLS"]
    # Where libpq looks for a password itself.
    file = os.environ.get("PGPASSFILE") or Path.home() / ".pgpass"
    libpq_has_one = bool(os.environ.get("PGPASSWORD")) or Path(file).exists()
    if not (password or "sslcert" in options or libpq_has_one):
        missing_protection.append("a password")
    _refuse(variable, remote_hosts[0], missing_protection, "Add ?sslmode=verify-full (and sslrootcert) and a password")


def _refuse(variable: str, host: str, missing: list[str], fix: str) -> None:
    if missing and one_of(ALLOW, ("refuse", "allow")) != "allow":
        raise EnvironmentUnusable(
            f"{variable} leads to {host} without {' and '.join(missing)}: others on that network can read and change "
            f"what runs on the hosts. {fix}. If the network is private and you accept this, set {ALLOW}=allow."
        )
