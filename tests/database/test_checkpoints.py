"""Checkpoints of SQLite's log, beside the writers."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controlplane.platform.sqlite import checkpoints
from controlplane.platform.sqlite.checkpoints import MAX_CHANGES, Checkpointer

PAGE = 4096


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that makes no checkpoints, to the empty database `store`."""
    with closing(sqlite3.connect(tmp_path / "store", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")
        connection.execute("CREATE TABLE page (bytes)")
        yield connection


def write(writer: sqlite3.Connection, pages: int) -> None:
    for _ in range(pages):
        writer.execute("INSERT INTO page VALUES (zeroblob(?))", [PAGE])


def test_commits_of_many_rows_are_copied_without_their_writer(writer: sqlite3.Connection, tmp_path: Path) -> None:
    write(writer, 100)
    beside = Checkpointer(threading.Lock())
    beside.changed(str(tmp_path / "store"), MAX_CHANGES - 1)
    assert (tmp_path / "store").stat().st_size < 100 * PAGE
    beside.changed(str(tmp_path / "store"), 1)
    end = time.monotonic() + 30
    while (tmp_path / "store").stat().st_size < 100 * PAGE:
        assert time.monotonic() < end, "nothing was copied"
        time.sleep(0.01)


def test_a_log_that_has_become_long_begins_anew(
    writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "LOG_PAGES", 200)
    write(writer, 200)
    long = (tmp_path / "store-wal").stat().st_size
    turn = threading.Lock()
    Checkpointer(turn).checkpoint(str(tmp_path / "store"))
    assert not turn.locked()
    write(writer, 100)
    assert (tmp_path / "store-wal").stat().st_size == long
    assert writer.execute("SELECT count(*) FROM page").fetchone() == (300,)


def test_a_database_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        Checkpointer(threading.Lock()).checkpoint(str(tmp_path / "gone"))
    assert not (tmp_path / "gone").exists()
