"""A process's pool of PostgreSQL connections: each is lent to one thread at a time, up to the configured number.

Under ASGI each request has its own thread, so Django's thread-bound connections would serve one request each. psycopg's
pool makes requests wait while the server refuses, hides the cause, and after a restart pauses between one dead
connection and the next; here a refusal is reported at once, and the first dead connection discards the others.
"""

import os
import select
import threading
import time
from collections import deque
from typing import Any

from django.db.backends.postgresql import base
from psycopg import Connection, IsolationLevel, OperationalError
from psycopg.pq import TransactionStatus

POOL_OPTIONS = ("most", "wait_s")
"""Options of the pool, which the driver doesn't know."""
KEPT_S = 60.0
"""Seconds after which an idle connection is closed, when another one is returned."""


class Shelf:
    """A process's idle connections to a database, and the slots for further ones."""

    def __init__(self, limit: int) -> None:
        self._slots = threading.BoundedSemaphore(limit)
        self.lost: deque[None] = deque()
        """An entry for each slot whose loan was garbage-collected before it ended, and which must be released."""
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection[Any]]] = []

    def acquire(self, wait_s: float) -> bool:
        """Acquire a slot within `wait_s` seconds. False: none became free."""
        self._find_lost()
        if self._slots.acquire(timeout=wait_s):
            return True
        self._find_lost()
        return self._slots.acquire(blocking=False)

    def release(self) -> None:
        self._slots.release()

    def take(self) -> Connection[Any] | None:
        """Return the most recently used connection, or None if there is none alive."""
        with self._lock:
            connection = self._idle.pop()[1] if self._idle else None
        if connection is None or not _has_ended(connection):
            return connection
        connection.close()
        self.clear()
        return None

    def put(self, connection: Connection[Any]) -> None:
        now = time.monotonic()
        with self._lock:
            self._idle.append((now, connection))
            expired = [idle for since, idle in self._idle if now - since > KEPT_S]
            self._idle = [(since, idle) for since, idle in self._idle if now - since <= KEPT_S]
        for idle in expired:
            idle.close()

    def clear(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _find_lost(self) -> None:
        while self.lost:
            try:
                self.lost.pop()
            except IndexError:  # another thread was first
                return
            self._slots.release()


class Loan:
    """A slot, which is released once: at its end, or when its thread ends without returning it."""

    def __init__(self, shelf: Shelf, wait_s: float) -> None:
        self._shelf: Shelf | None = None
        if not shelf.acquire(wait_s):
            raise OperationalError("every connection that this process may have to its database is in use")
        self._shelf = shelf

    def end(self) -> None:
        shelf, self._shelf = self._shelf, None
        if shelf is not None:
            shelf.release()

    def __del__(self) -> None:
        # It may run in a thread that holds the semaphore's lock, so it must not take a lock.
        if self._shelf is not None:
            self._shelf.lost.append(None)


_shelves: dict[tuple[object, ...], Shelf] = {}
_making = threading.Lock()


class DatabaseWrapper(base.DatabaseWrapper):
    _loan: Loan | None = None

    def get_connection_params(self) -> dict[str, Any]:
        return {name: value for name, value in super().get_connection_params().items() if name not in POOL_OPTIONS}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection[Any]:
        shelf = self._shelf()
        loan = Loan(shelf, self.settings_dict["OPTIONS"]["wait_s"])
        self.isolation_level = IsolationLevel.READ_COMMITTED
        try:
            connection = shelf.take() or super().get_new_connection(conn_params)
        except BaseException:
            # psycopg's error is part of a reference cycle that holds this frame, and so the loan, until it is
            # collected.
            loan.end()
            raise
        self._loan = loan
        return connection

    def close_pool(self) -> None:
        """Close the idle connections. Django's tests call this before they drop a database."""
        self._shelf().clear()

    def _shelf(self) -> Shelf:
        # A connection made before a fork belongs to the parent.
        where = [self.settings_dict[name] for name in ("HOST", "PORT", "NAME", "USER")]
        with _making:
            return _shelves.setdefault((os.getpid(), *where), Shelf(self.settings_dict["OPTIONS"]["most"]))

    def _close(self) -> None:
        connection, loan = self.connection, self._loan
        self._loan = None
        if connection is None:
            return
        try:
            # In the middle of a transaction it can't be reused.
            at_rest = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if loan is None or self.in_atomic_block or not at_rest:
                with self.wrap_database_errors:
                    connection.close()
            else:
                self._shelf().put(connection)
        finally:
            if loan is not None:
                loan.end()


def _has_ended(connection: Connection[Any]) -> bool:
    """Check whether the server has closed the connection: it sends nothing unasked but its end."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
