"""The database: PostgreSQL at CONTROLPLANE_DATABASE_URL, otherwise SQLite in the data folder.

Standard library only: the settings and manage.py use it before Django is loaded.
"""

import os
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from controlplane.platform.environment import EnvironmentUnusable, whole_number
from controlplane.platform.plaintext import refuse_open_postgresql

URL_VARIABLE = "CONTROLPLANE_DATABASE_URL"
CONNECTIONS_VARIABLE = "CONTROLPLANE_DATABASE_CONNECTIONS"
WAIT_VARIABLE = "CONTROLPLANE_DATABASE_WAIT_S"
URL_FORMAT = "postgresql://user:password@host:port/name"

CONNECTION_WAIT_S = 3
"""Seconds to wait for a connection: few, because supervisors and browsers should rather retry."""
LOCK_WAIT_S = 20
"""Seconds to wait for a lock: more, because a lock is held only briefly."""
MAX_CONNECTIONS = 16
LOG_PAGES = 16_000
"""Number of pages in SQLite's write-ahead log at which a commit copies them into the database (sqlite.checkpoints)."""
SSL = ("sslmode", "sslrootcert", "sslcert", "sslkey")
PARTS = ("host", "port", "user", "password")
"""Parts of the address that its query may contain instead; a Unix socket's folder is only possible there."""
OPTIONS: dict[str, Any] = {
    "application_name": "controlplane",
    "connect_timeout": CONNECTION_WAIT_S,
    # After a power failure a server doesn't respond: without these a request would wait for a quarter of an hour.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    # As long as SQLite waits for a lock; and a frozen process loses its locks. For a pooler that rejects start-up
    # parameters, set `options=` in the address.
    "options": f"-c lock_timeout={LOCK_WAIT_S}s -c idle_in_transaction_session_timeout=60s",
}
CHOICES = (*SSL, *OPTIONS)


class DatabaseUnusable(EnvironmentUnusable):
    """Error for an unusable CONTROLPLANE_DATABASE_URL. The message never contains the address, which has a password."""


def databases(data: Path) -> dict[str, dict[str, Any]]:
    """Return the value of Django's DATABASES setting. Raises DatabaseUnusable if CONTROLPLANE_DATABASE_URL is
    invalid."""
    url = os.environ.get(URL_VARIABLE, "")
    return {"default": _postgresql(url) if url else _sqlite(data)}


def _sqlite(data: Path) -> dict[str, Any]:
    return {
        "ENGINE": "controlplane.platform.sqlite",
        "NAME": data / "controlplane.sqlite3",
        # A file as in production: tests with several threads can't share a database in memory.
        "TEST": {"NAME": data / "test.sqlite3"},
        # Closing the last connection would write back the whole journal and wait for the disk: not after every request.
        "CONN_MAX_AGE": 60,
        "OPTIONS": {
            "transaction_mode": "IMMEDIATE",
            "timeout": whole_number(WAIT_VARIABLE, LOCK_WAIT_S),
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON; "
            f"PRAGMA wal_autocheckpoint={LOG_PAGES};",
        },
    }


def _postgresql(url: str) -> dict[str, Any]:
    parts = _split(url)
    options = _query(parts)
    name = unquote(parts.path.removeprefix("/"))
    if not name or "/" in name:
        raise DatabaseUnusable(f"{URL_VARIABLE} doesn't name a database. It should look like {URL_FORMAT}.")
    host = options.pop("host", unquote(parts.hostname or ""))
    password = options.pop("password", unquote(parts.password or ""))
    refuse_open_postgresql(URL_VARIABLE, host, password, options)
    return {
        "ENGINE": "controlplane.platform.postgres",
        "NAME": name,
        "USER": options.pop("user", unquote(parts.username or "")),
        "PASSWORD": password,
        "HOST": host,
        "PORT": options.pop("port", str(parts.port or "")),
        # The last two are for controlplane.platform.postgres: the connections per process, and the wait for one.
        "OPTIONS": {
            **OPTIONS,
            **options,
            "most": whole_number(CONNECTIONS_VARIABLE, MAX_CONNECTIONS),
            "wait_s": whole_number(WAIT_VARIABLE, CONNECTION_WAIT_S),
        },
    }


def _split(url: str) -> SplitResult:
    """Parse the address. Raises DatabaseUnusable if it is invalid, since the library's own errors may quote a part of
    the password."""
    try:
        parts = urlsplit(url)
        is_valid = parts.port is None or parts.port > 0
    except ValueError:
        is_valid = False
    if not is_valid or parts.fragment:
        hint = "In a password, write @ : / ? # and % as %40 %3A %2F %3F %23 and %25."
        raise DatabaseUnusable(f"{URL_VARIABLE} can't be parsed. It should look like {URL_FORMAT}. {hint}")
    if parts.scheme not in ("postgresql", "postgres"):
        raise DatabaseUnusable(
            f"{URL_VARIABLE} must begin with postgresql://. Unset it to use SQLite in the data folder."
        )
    return parts


def _query(parts: SplitResult) -> dict[str, str]:
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if set(options) - {*PARTS, *CHOICES}:
        names = ", ".join((*PARTS, *CHOICES))
        raise DatabaseUnusable(f"{URL_VARIABLE} has an unknown option after the ?. Known options: {names}.")
    return options
