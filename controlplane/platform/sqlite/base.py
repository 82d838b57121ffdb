"""SQLite backend with a queue of writers: a process's writers wait for a lock, and only its holder for other processes.

SQLite allows one write transaction. Others sleep and retry, up to a tenth of a second apart and in no order: with 200
supervisors some waited twenty seconds although the database was idle half of the time. Here a transaction waits for a
lock that wakes it, and only its holder polls SQLite, every millisecond. Single statements outside a transaction use
SQLite's own retries.
"""

import sqlite3
import threading
import time

from django.db import OperationalError
from django.db.backends.sqlite3 import base

from controlplane.platform.sqlite.checkpoints import Checkpointer

POLL_INTERVAL_S = 0.001
_turn = threading.Lock()
_checkpoints = Checkpointer(_turn)


class DatabaseWrapper(base.DatabaseWrapper):
    _has_turn = False
    _changes_before = 0

    def _start_transaction_under_autocommit(self) -> None:
        timeout_s = float(self.settings_dict["OPTIONS"].get("timeout", 5))
        deadline = time.monotonic() + timeout_s
        self.ensure_connection()
        if not _turn.acquire(timeout=timeout_s):
            raise OperationalError("database is locked")
        self._has_turn = True
        try:
            self._begin(deadline, timeout_s)
            self._changes_before = self.connection.total_changes
        except BaseException:
            self._release_turn()
            raise

    def _begin(self, deadline: float, timeout_s: float) -> None:
        connection: sqlite3.Connection = self.connection
        connection.execute("PRAGMA busy_timeout = 0")
        try:
            while not self._try_begin(deadline):
                time.sleep(POLL_INTERVAL_S)
        finally:
            connection.execute(f"PRAGMA busy_timeout = {int(timeout_s * 1000)}")

    def _try_begin(self, deadline: float) -> bool:
        try:
            super()._start_transaction_under_autocommit()  # type: ignore[misc]  # unknown to django-stubs
        except OperationalError as error:
            code = getattr(error.__cause__, "sqlite_errorcode", 0)
            if code & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            return False
        return True

    def _commit(self) -> None:
        super()._commit()  # type: ignore[misc]  # unknown to django-stubs
        # Not after a failure: a rollback follows.
        if self._has_turn:
            changed_rows = self.connection.total_changes - self._changes_before
            _checkpoints.changed(self.settings_dict["NAME"], changed_rows)
        self._release_turn()

    def _rollback(self) -> None:
        try:
            super()._rollback()  # type: ignore[misc]  # unknown to django-stubs
        finally:
            self._release_turn()

    def _close(self) -> None:
        try:
            super()._close()  # type: ignore[misc]  # unknown to django-stubs
        finally:
            self._release_turn()

    def _release_turn(self) -> None:
        if self._has_turn:
            self._has_turn = False
            _turn.release()
