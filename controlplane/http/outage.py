"""Database outages: which errors count as one, and one line in the log for each."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time

from django.db import InterfaceError, InternalError, OperationalError

QUIET_S = 60.0
"""Failures closer to each other than this are one outage."""
_WAITS = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
"""What waiting may mend. SQLite reports a missing table and a wrong statement by the same class."""
_PASSING = frozenset({"25006", "25P03"})
"""A server that was made read-only (a failover), and a transaction that the server gave up while we stood still."""


def is_away(error: BaseException | None) -> bool:
    """Gone, going, refusing, full or locked: the same request may succeed later."""
    if isinstance(error, OperationalError | InterfaceError):
        code = getattr(error.__cause__, "sqlite_errorcode", None)
        return code is None or code & 0xFF in _WAITS
    return isinstance(error, InternalError) and getattr(error.__cause__, "sqlstate", None) in _PASSING


class OncePerOutage(logging.Filter):
    """Whatever logs such an error: one line without a traceback, then silence until it has been well for a while."""

    _lock = threading.Lock()
    _last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not is_away(error):
            return True
        now = time.monotonic()
        with self._lock:
            first = now - OncePerOutage._last > QUIET_S
            OncePerOutage._last = now
        said = " ".join(str(error).split())
        record.msg, record.args = (
            "The database can't be reached (said once while it lasts; %s): %s",
            (record.name, said),
        )
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info, record.exc_text = None, None
        return first
