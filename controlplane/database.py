"""Which database an installation has chosen: CONTROLPLANE_DATABASE_URL, else SQLite in the data folder.

Standard library only: the settings and manage.py use it before Django is there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from controlplane.environment import EnvironmentUnusable, whole

URL = "CONTROLPLANE_DATABASE_URL"
CONNECTIONS = "CONTROLPLANE_DATABASE_CONNECTIONS"
WAIT = "CONTROLPLANE_DATABASE_WAIT_S"
SHAPE = "postgresql://user:password@host:port/name"

CONNECTION_WAIT_S = 3
"""Supervisors and browsers are better told to come again than kept waiting."""
LOCK_WAIT_S = 20
"""Longer: whoever holds a lock is at work, and soon through."""
MOST_CONNECTIONS = 16
SSL = ("sslmode", "sslrootcert", "sslcert", "sslkey")
PARTS = ("host", "port", "user", "password")
"""May stand in the query too: a folder of a Unix socket has no other place."""
OPTIONS: dict[str, Any] = {
    "application_name": "controlplane",
    "connect_timeout": CONNECTION_WAIT_S,
    # A server that has lost its power answers nothing: without these a request would wait a quarter of an hour for it.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    # As long as SQLite waits for a lock; and what a frozen process holds is given back. A pooler that refuses
    # parameters at the start is told `options=` in the address.
    "options": f"-c lock_timeout={LOCK_WAIT_S}s -c idle_in_transaction_session_timeout=60s",
}
CHOICES = (*SSL, *OPTIONS)


class DatabaseUnusable(EnvironmentUnusable):
    """CONTROLPLANE_DATABASE_URL can't be used. The text never holds the address: it has a password."""


def databases(data: Path) -> dict[str, dict[str, Any]]:
    """Django's DATABASES."""
    url = os.environ.get(URL, "")
    return {"default": _postgresql(url) if url else _sqlite(data)}


def _sqlite(data: Path) -> dict[str, Any]:
    return {
        "ENGINE": "controlplane.sqlite",
        "NAME": data / "controlplane.sqlite3",
        # A file as in real life: tests with several threads can't share one in memory.
        "TEST": {"NAME": data / "test.sqlite3"},
        # The last connection that closes writes the whole journal back and waits for the disk: not after each request.
        "CONN_MAX_AGE": 60,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": whole(WAIT, LOCK_WAIT_S),
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
    }


def _postgresql(url: str) -> dict[str, Any]:
    parts = _split(url)
    asked = _query(parts)
    name = unquote(parts.path.removeprefix("/"))
    if not name or "/" in name:
        raise DatabaseUnusable(f"{URL} names no database: {SHAPE}.")
    return {
        "ENGINE": "controlplane.postgres",
        "NAME": name,
        "USER": asked.pop("user", unquote(parts.username or "")),
        "PASSWORD": asked.pop("password", unquote(parts.password or "")),
        "HOST": asked.pop("host", unquote(parts.hostname or "")),
        "PORT": asked.pop("port", str(parts.port or "")),
        "OPTIONS": {**OPTIONS, **asked, **_lending()},
    }


def _split(url: str) -> SplitResult:
    """Errors in our words: the library's own quote what they could not read, which may be half of a password."""
    try:
        parts = urlsplit(url)
        readable = parts.port is None or parts.port > 0
    except ValueError:
        readable = False
    if not readable or parts.fragment:
        hint = "In a password, write @ : / ? # and % as %40 %3A %2F %3F %23 and %25."
        raise DatabaseUnusable(f"{URL} can't be read. It looks like {SHAPE}. {hint}")
    if parts.scheme not in ("postgresql", "postgres"):
        raise DatabaseUnusable(f"{URL} must begin with postgresql://. Leave it out for SQLite in the data folder.")
    return parts


def _query(parts: SplitResult) -> dict[str, str]:
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if set(asked) - {*PARTS, *CHOICES}:
        known = ", ".join((*PARTS, *CHOICES))
        raise DatabaseUnusable(f"{URL} has an option after its ? that is not known here. Known are: {known}.")
    return asked


def _lending() -> dict[str, int]:
    """Of controlplane.postgres: how many connections a process has at most, and how long one is waited for."""
    return {"most": whole(CONNECTIONS, MOST_CONNECTIONS), "wait_s": whole(WAIT, CONNECTION_WAIT_S)}
