"""A database made before each app's migrations became one."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from controlplane.platform.datafolder import DataFolderUnusable
from controlplane.setup.serving import preparing

pytestmark = pytest.mark.django_db


def as_it_was_before(*, without: int = 0) -> None:
    """The record of an installation that has run the old migrations, all but the last `without` of each app."""
    recorder = MigrationRecorder(connection)
    for (app, name), migration in MigrationLoader(None).disk_migrations.items():
        if migration.replaces:
            recorder.record_unapplied(app, name)
            for old in migration.replaces[len(migration.replaces) - without :]:
                recorder.record_unapplied(*old)


def test_a_database_with_all_old_migrations_is_up_to_date() -> None:
    as_it_was_before()
    said: list[str] = []
    preparing._migrate(said.append)
    assert said == []


def test_a_database_with_some_of_them_is_refused_with_what_to_do() -> None:
    as_it_was_before(without=1)
    with pytest.raises(DataFolderUnusable, match="CONTROLPLANE_DATA to another folder"):
        preparing._migrate(lambda line: None)


def a_database(folder: Path) -> Path:
    with closing(sqlite3.connect(folder / "controlplane.sqlite3")) as made, made:
        made.execute("CREATE TABLE django_migrations (app, name)")
        made.execute("INSERT INTO django_migrations VALUES ('runs', '0001')")
    return folder / "controlplane.sqlite3"


def test_a_database_that_can_not_be_restored_stays_in_its_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = a_database(tmp_path)
    monkeypatch.setattr(preparing, "connection", SimpleNamespace(close=lambda: None))

    def fail() -> None:
        with preparing._restored_from_copy(database):
            database.unlink()
            database.mkdir()
            raise ValueError("no such thing.")

    with pytest.raises(DataFolderUnusable, match=r"failed \(no such thing\), and so did its restoration") as caught:
        fail()
    copy = database.with_name(f"{preparing.COPY}.unfinished")
    assert f"Nothing is lost: {copy} is the database before the update." in str(caught.value)
    assert preparing._applied(copy) == {("runs", "0001")}


def test_a_copy_for_which_there_is_no_room_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = a_database(tmp_path)

    def no_room(source: Path, target: Path) -> None:
        target.write_bytes(b"half of it")
        raise DataFolderUnusable("The disk may be full.")

    monkeypatch.setattr(preparing, "_copy", no_room)
    with pytest.raises(DataFolderUnusable, match="full"), preparing._restored_from_copy(database):
        pass
    assert list(tmp_path.iterdir()) == [database]
