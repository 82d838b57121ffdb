"""SQLite's writers: those of one process wait in a queue, and nobody keeps the turn that has ended."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from django.contrib.auth.models import Group
from django.db import connection, transaction
from django.db.utils import OperationalError

from controlplane.platform.sqlite import base

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="PostgreSQL has more than one writer"),
]


def write(name: str) -> None:
    try:
        with transaction.atomic():
            Group.objects.create(name=name)
    finally:
        connection.close()


def test_many_writers_all_come_in() -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, [f"group {number}" for number in range(200)]))
    assert Group.objects.count() == 200
    assert not base._turn.locked()


def test_who_waits_comes_in_as_soon_as_the_one_before_has_ended() -> None:
    waiting = threading.Thread(target=write, args=("second",))
    with transaction.atomic():
        waiting.start()
        Group.objects.create(name="first")
    waiting.join(10)
    assert list(Group.objects.order_by("pk").values_list("name", flat=True)) == ["first", "second"]


def break_off(how: str) -> None:
    with transaction.atomic():
        Group.objects.create(name="never")
        if how == "close":
            connection.close()
        if how == "rollback":
            transaction.set_rollback(True)
        raise ZeroDivisionError


@pytest.mark.parametrize("how", ["raise", "close", "rollback"])
def test_a_transaction_that_is_broken_off_gives_up_its_turn(how: str) -> None:
    with pytest.raises(ZeroDivisionError):
        break_off(how)
    assert not base._turn.locked()
    write("after")
    assert Group.objects.get().name == "after"


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "timeout", 0.05)
    with base._turn, pytest.raises(OperationalError, match="locked"), transaction.atomic():
        pass
    write("after")


def test_a_savepoint_keeps_the_turn_of_its_transaction() -> None:
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            raise ZeroDivisionError
        assert base._turn.locked()
        Group.objects.create(name="kept")
    assert not base._turn.locked()
    assert Group.objects.get().name == "kept"
