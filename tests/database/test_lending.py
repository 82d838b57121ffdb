"""Connections to PostgreSQL that a process lends to its threads."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.db.utils import ConnectionHandler

from controlplane.platform.database import CONNECTIONS_VARIABLE, URL_VARIABLE, WAIT_VARIABLE, databases
from controlplane.platform.postgres.base import Pool, Slot
from tests.postgres import Postgres

pytestmark = pytest.mark.django_db


@pytest.fixture
def handler(postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ConnectionHandler]:
    """Two connections at most, and a second's wait for one."""
    monkeypatch.setenv(URL_VARIABLE, postgres.url("lending"))
    monkeypatch.setenv(CONNECTIONS_VARIABLE, "2")
    monkeypatch.setenv(WAIT_VARIABLE, "1")
    handler = ConnectionHandler(databases(tmp_path))
    yield handler
    handler["default"].close()
    handler["default"].close_pool()


def backend(handler: ConnectionHandler) -> int:
    """The server's process behind this thread's connection."""
    with handler["default"].cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return int(cursor.fetchone()[0])


def used(handler: ConnectionHandler) -> int:
    """The same, given back after use."""
    try:
        return backend(handler)
    finally:
        handler["default"].close()


def elsewhere(act: Callable[[], Any]) -> Future[Any]:
    """In a thread of its own, as each request is."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(act())
        except Exception as error:
            future.set_exception(error)

    threading.Thread(target=run).start()
    return future


def test_requests_after_each_other_use_one_connection(handler: ConnectionHandler) -> None:
    assert len({elsewhere(lambda: used(handler)).result(20) for _ in range(5)}) == 1


def test_there_are_no_more_than_the_setting_says(handler: ConnectionHandler) -> None:
    gate, held = threading.Event(), threading.Semaphore(0)

    def hold() -> None:
        backend(handler)
        held.release()
        gate.wait(20)
        handler["default"].close()

    holders = [elsewhere(hold) for _ in range(2)]
    assert all(held.acquire(timeout=20) for _ in holders)
    with pytest.raises(OperationalError, match="in use"):
        elsewhere(lambda: used(handler)).result(20)
    gate.set()
    assert [holder.result(20) for holder in holders] == [None, None]
    assert elsewhere(lambda: used(handler)).result(20)


def test_a_thread_that_never_gives_back_takes_no_place_for_ever(handler: ConnectionHandler) -> None:
    def forget() -> None:
        assert elsewhere(lambda: backend(handler)).result(20)
        gc.collect()

    for _ in range(5):
        with pytest.warns(ResourceWarning):
            forget()


def test_a_connection_in_the_middle_of_a_transaction_is_given_to_nobody(handler: ConnectionHandler) -> None:
    connection = handler["default"]
    first = backend(handler)
    connection.set_autocommit(False)
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE half_done (id int)")
    connection.close()
    assert used(handler) != first


def test_after_a_restart_of_the_server_the_first_request_is_served(
    handler: ConnectionHandler, postgres: Postgres
) -> None:
    both = [elsewhere(lambda: used(handler)) for _ in range(2)]
    assert all(one.result(20) for one in both)
    postgres.stop()
    with pytest.raises(OperationalError, match="server on socket"):
        used(handler)
    postgres.start()
    assert used(handler)


def test_a_server_that_refuses_costs_no_place(handler: ConnectionHandler, postgres: Postgres) -> None:
    postgres.stop()
    gc.disable()
    try:
        for _ in range(4):
            with pytest.raises(OperationalError, match="server on socket"):
                used(handler)
    finally:
        gc.enable()
        postgres.start()
    assert used(handler)


def test_a_loan_that_is_forgotten_while_somebody_takes_a_place_waits_for_nobody() -> None:
    pool = Pool(1)
    slot = Slot(pool, 0)
    with pool._slots._cond:  # type: ignore[attr-defined]  # as whoever takes a place holds it
        del slot
    Slot(pool, 0).end()
    assert pool.acquire(0)
    assert not pool.acquire(0)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # other tests of the process may have left threads
def test_what_was_made_before_a_fork_stays_with_the_parent(handler: ConnectionHandler) -> None:
    first = used(handler)
    child = os.fork()
    if child == 0:
        try:
            other = used(handler)
            os._exit(0 if other != first else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert used(handler) == first


def test_settings_of_the_address_reach_the_server(handler: ConnectionHandler) -> None:
    with handler["default"].cursor() as cursor:
        cursor.execute("SELECT current_setting('application_name'), current_setting('lock_timeout')")
        assert cursor.fetchone() == ("controlplane", "20s")
