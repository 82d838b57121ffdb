"""Pool of a process's PostgreSQL connections, up to the configured number, each lent to one thread at a time.

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
MAX_IDLE_S = 60.0
"""Seconds after which an idle connection is closed, when another one is returned."""


class Pool:
    """Idle connections of a process to a database, and the slots that limit how many may be in use."""

    def __init__(self, limit: int) -> None:
        self._slots = threading.BoundedSemaphore(limit)
        self.lost: deque[None] = deque()
        """One entry for each Slot that was garbage-collected before it was released, and must be released now."""
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Connection[Any]]] = []

    def acquire(self, wait_s: float) -> bool:
        """Acquire a slot, and return False if none became free within `wait_s` seconds."""
        self._release_lost()
        if self._slots.acquire(timeout=wait_s):
            return True
        self._release_lost()
        return self._slots.acquire(blocking=False)

    def release(self) -> None:
        self._slots.release()

    def take(self) -> Connection[Any] | None:
        """Remove and return the most recently used idle connection, or None if none is alive."""
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
            expired = [idle for since, idle in self._idle if now - since > MAX_IDLE_S]
            self._idle = [(since, idle) for since, idle in self._idle if now - since <= MAX_IDLE_S]
        for idle in expired:
            idle.close()

    def clear(self) -> None:
        with self._lock:
            connections, self._idle = self._idle, []
        for _, connection in connections:
            connection.close()

    def _release_lost(self) -> None:
        while self.lost:
            try:
                self.lost.pop()
            except IndexError:  # another thread was first
                return
            self._slots.release()


class Slot:
    """Slot of a connection, released once: by `end`, or when its thread ends without calling that."""

    def __init__(self, pool: Pool, wait_s: float) -> None:
        self._pool: Pool | None = None
        if not pool.acquire(wait_s):
            raise OperationalError("all connections that this process may open to the database are in use")
        self._pool = pool

    def end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.release()

    def __del__(self) -> None:
        # It may run in a thread that holds the semaphore's lock, so it must not take a lock.
        if self._pool is not None:
            self._pool.lost.append(None)


_pools: dict[tuple[object, ...], Pool] = {}
_pools_lock = threading.Lock()


class DatabaseWrapper(base.DatabaseWrapper):
    _slot: Slot | None = None

    def get_connection_params(self) -> dict[str, Any]:
        return {name: value for name, value in super().get_connection_params().items() if name not in POOL_OPTIONS}

    def get_new_connection(self, conn_params: dict[str, Any]) -> Connection[Any]:
        pool = self._pool_of_process()
        slot = Slot(pool, self.settings_dict["OPTIONS"]["wait_s"])
        self.isolation_level = IsolationLevel.READ_COMMITTED
        try:
            connection = pool.take() or super().get_new_connection(conn_params)
        except BaseException:
            # psycopg's error is part of a reference cycle that holds this frame, and so the slot, until it is
            # collected.
            slot.end()
            raise
        self._slot = slot
        return connection

    def close_pool(self) -> None:
        """Close the idle connections. Django's tests call this before they drop a database."""
        self._pool_of_process().clear()

    def _pool_of_process(self) -> Pool:
        # A connection made before a fork belongs to the parent.
        database = [self.settings_dict[name] for name in ("HOST", "PORT", "NAME", "USER")]
        with _pools_lock:
            return _pools.setdefault((os.getpid(), *database), Pool(self.settings_dict["OPTIONS"]["most"]))

    def _close(self) -> None:
        connection, slot = self.connection, self._slot
        self._slot = None
        if connection is None:
            return
        try:
            # In the middle of a transaction it can't be reused.
            is_idle = not connection.closed and connection.info.transaction_status == TransactionStatus.IDLE
            if slot is None or self.in_atomic_block or not is_idle:
                with self.wrap_database_errors:
                    connection.close()
            else:
                self._pool_of_process().put(connection)
        finally:
            if slot is not None:
                slot.end()


def _has_ended(connection: Connection[Any]) -> bool:
    """Return whether the server has closed the connection: if it hasn't, there is nothing to read."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
