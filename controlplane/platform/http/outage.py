"""Database outages: the errors that mean one, and a single log line per outage."""

import logging
import sqlite3
import threading
import time

from django.db import InterfaceError, InternalError, OperationalError

QUIET_S = 60.0
"""Maximum number of seconds between two failures of the same outage."""
_TEMPORARY_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_READONLY,
    }
)
"""Codes of SQLite's temporary errors; missing tables and wrong statements raise the same exception class."""
_TEMPORARY_STATES = frozenset({"25006", "25P03"})
"""SQLSTATEs for a server that became read-only (a failover), and for an idle transaction that the server ended."""

AWAY = "The database can't be reached. Runs keep training and send their results as soon as it is back."
_STOPPED_STATE = "57014"
_FULL = "The database's disk is full. Free some space there."
_REASONS = {
    sqlite3.SQLITE_FULL: _FULL,
    "53100": _FULL,
    _STOPPED_STATE: "The database stopped a statement at its time limit. If it happens again, raise statement_timeout.",
}
"""Reasons other than AWAY, by SQLite's code or by SQLSTATE."""


def reason(error: BaseException | None) -> str:
    """Return what an error for which `is_away` is true means, and what to do."""
    cause = error.__cause__ if error else None
    code = getattr(cause, "sqlite_errorcode", None)
    return _REASONS.get(_state(error) if code is None else code & 0xFF, AWAY)


def _state(error: BaseException | None) -> str:
    return str(getattr(error.__cause__ if error else None, "sqlstate", ""))


def is_away(error: BaseException | None) -> bool:
    """Return whether the error means that the database is stopped, starting, full or locked, so that the same request
    may succeed later."""
    if isinstance(error, OperationalError | InterfaceError):
        code = getattr(error.__cause__, "sqlite_errorcode", None)
        return code is None or code & 0xFF in _TEMPORARY_CODES
    return isinstance(error, InternalError) and _state(error) in _TEMPORARY_STATES


class OncePerOutage(logging.Filter):
    """Filter that logs the first error of an outage in one line without a traceback, and drops the others. Statements
    that the database stopped keep their tracebacks, which say what was too slow."""

    _lock = threading.Lock()
    _last = float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        if not is_away(error) or _state(error) == _STOPPED_STATE:
            return True
        now = time.monotonic()
        with self._lock:
            is_first = now - OncePerOutage._last > QUIET_S
            OncePerOutage._last = now
        message = " ".join(str(error).split())
        record.msg, record.args = (
            "The database can't be reached (logged once per outage; %s): %s",
            (record.name, message),
        )
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.exc_info, record.exc_text = None, None
        return is_first
