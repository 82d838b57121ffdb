"""What is answered and logged while the database is away. The database of these tests is made to fail for real."""

from __future__ import annotations

import errno
import io
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, ProgrammingError, connection
from django.http import HttpResponse
from django.test import Client
from pytest_django.fixtures import Settings

from controlplane.platform.accounts.models import Role, User
from controlplane.platform.confined.pool import ChildPool
from controlplane.platform.http import outage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def signed_in() -> Client:
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.create_user("olga", role=Role.OPERATOR))
    return client


@pytest.fixture
def away(signed_in: Client, tmp_path: Path) -> Iterator[None]:
    """The file or the socket that this process opens for its database lies in a folder that is not there."""
    connection.close()
    setting = "NAME" if connection.vendor == "sqlite" else "HOST"
    before = connection.settings_dict[setting]
    connection.settings_dict[setting] = str(tmp_path / "gone" / "database")
    yield
    connection.close()
    connection.settings_dict[setting] = before


@pytest.fixture(autouse=True)
def well_until_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outage.OncePerOutage, "_last", float("-inf"))


def page(client: Client, path: str = "/runs/", **headers: str) -> HttpResponse:
    return client.get(path, headers=headers)  # type: ignore[return-value]


@pytest.mark.usefixtures("away")
def test_a_page_says_so_and_comes_back_by_itself(signed_in: Client) -> None:
    answer = page(signed_in)
    text = answer.content.decode()
    assert answer.status_code == 503
    assert (answer.headers["Retry-After"], answer.headers["Refresh"], answer.headers["Cache-Control"]) == (
        "5",
        "5",
        "no-store",
    )
    assert "The database is unavailable" in text
    assert "Runs keep training" in text


@pytest.mark.usefixtures("away")
def test_what_was_sent_is_not_sent_again_by_the_page(signed_in: Client) -> None:
    answer = signed_in.post("/datasets/upload/", {})
    assert answer.status_code == 503
    assert "Refresh" not in answer.headers
    assert "Go back in a moment" in answer.content.decode()


@pytest.mark.usefixtures("away")
@pytest.mark.parametrize(
    ("path", "headers"),
    [("/runs/", {"accept": "application/json"}), ("/api/attempts/r1-1/sync", {"accept": "*/*"})],
)
def test_a_program_is_answered_in_its_shape(signed_in: Client, path: str, headers: dict[str, str]) -> None:
    from controlplane.platform.http.tokens import attempt_token

    answer = signed_in.post(path, headers={"authorization": f"Bearer {attempt_token('r1-1')}", **headers})
    assert answer.status_code == 503
    assert answer.json()["error"]["where"] == "database"
    assert answer.headers["Retry-After"] == "5"


@pytest.mark.usefixtures("away")
def test_it_is_logged_once_and_without_a_traceback(signed_in: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    handler = next(
        h for h in logging.getLogger().handlers if any(isinstance(f, outage.OncePerOutage) for f in h.filters)
    )
    logged = io.StringIO()
    monkeypatch.setattr(handler, "stream", logged)
    for _ in range(3):
        page(signed_in)
    assert logged.getvalue().count("\n") == logged.getvalue().count("can't be reached") == 1


def test_it_is_logged_again_after_a_while_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def passes() -> bool:
        error = OperationalError("gone")
        return outage.OncePerOutage().filter(
            logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), (type(error), error, None))
        )

    assert [passes(), passes()] == [True, False]
    monkeypatch.setattr(outage, "QUIET_S", 0.0)
    assert passes()


@pytest.mark.parametrize(
    ("error", "away_"),
    [
        (OperationalError("server closed the connection unexpectedly"), True),
        (OperationalError("database is locked"), True),
        (InterfaceError("connection already closed"), True),
        (ProgrammingError('relation "runs_run" does not exist'), False),
        (ValueError("database is locked"), False),
        (None, False),
    ],
)
def test_what_waiting_mends_is_told_from_a_bug(error: Exception | None, away_: bool) -> None:
    assert outage.is_away(error) == away_


@pytest.mark.parametrize("statement", ["SELECT 1 FROM nowhere", "SELECT nothing", "SELECT 1 FROM", "SELECT f(1)"])
def test_a_statement_that_is_wrong_is_no_outage(statement: str) -> None:
    with pytest.raises(DatabaseError) as raised, connection.cursor() as cursor:
        cursor.execute(statement)
    assert not outage.is_away(raised.value)


@pytest.mark.usefixtures("away")
def test_a_database_that_cannot_be_opened_is_one() -> None:
    with pytest.raises(OperationalError) as raised:
        connection.ensure_connection()
    assert outage.is_away(raised.value)


def test_a_bug_is_still_a_server_error_with_its_traceback(
    settings: Settings, signed_in: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE runs_run RENAME TO runs_elsewhere")
    try:
        assert page(signed_in).status_code == 500
    finally:
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE runs_elsewhere RENAME TO runs_run")
    assert any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("57014", "stopped a statement at its time limit"),
        ("53100", "disk is full. Free some space"),
        ("57P01", "be reached. Runs keep training"),
    ],
)
def test_the_answer_says_what_is_wrong_with_the_database(signed_in: Client, state: str, says: str) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationalError("no") from psycopg.errors.lookup(state)("no")

    with connection.execute_wrapper(fail):
        answer = page(signed_in)
    assert answer.status_code == 503
    assert says in answer.content.decode()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_named(signed_in: Client, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def run(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(ChildPool, "run", run)
    answer = signed_in.post("/runs/new/import", {"import_text": "learning_rate: 1"})
    assert answer.status_code == 507
    assert "The disk of the control plane is full" in answer.content.decode()
