"""A database made before each app's migrations became one."""

from __future__ import annotations

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
