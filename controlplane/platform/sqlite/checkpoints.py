"""Thread whose checkpoints copy committed changes from SQLite's log into the database file.

By default SQLite does this within the commit that makes the log a thousand pages long. With a thousand live runs that
happens several times a second, while every writer waits for the disk. Here a commit only wakes the thread, whose
checkpoints block no writer. SQLite still makes its own checkpoint at LOG_PAGES, in case the thread doesn't keep up.
"""

import contextlib
import logging
import sqlite3
import threading
from pathlib import Path

from controlplane.platform.database import LOG_PAGES

log = logging.getLogger(__name__)

MAX_CHANGES = 1000


class Checkpointer:
    """Checkpoints of one database in one process. `turn` is the lock that the process's writers share."""

    def __init__(self, turn: threading.Lock) -> None:
        self._turn = turn
        self._changes = 0
        self._due = threading.Event()
        self._thread: threading.Thread | None = None

    def changed(self, database: str, rows: int) -> None:
        """Count a transaction's rows, and wake the thread if a checkpoint is due. The caller holds the turn."""
        self._changes += rows
        if self._changes < MAX_CHANGES:
            return
        self._changes = 0
        if self._thread is None or not self._thread.is_alive():  # not alive in a forked process
            self._due = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(database,), name="checkpoints", daemon=True)
            self._thread.start()
        self._due.set()

    def _run(self, database: str) -> None:
        while self._due.wait():
            self._due.clear()
            try:
                self.checkpoint(database)
            except sqlite3.Error as error:
                log.debug("no checkpoint: %s", error)

    def checkpoint(self, database: str) -> None:
        """Copy the log into the database.

        If the log is long, hold the turn and copy the rest as well, so that the next transaction restarts the log.
        """
        address = f"{Path(database).absolute().as_uri()}?mode=rw"
        with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
            if _pages(connection) > LOG_PAGES // 2:
                with self._turn:
                    _pages(connection)


def _pages(connection: sqlite3.Connection) -> int:
    """Copy what can be copied without blocking, and return the number of pages in the log."""
    _busy, pages, _copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(pages)
