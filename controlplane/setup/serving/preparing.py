"""Preparation of the data folder before the web starts: database, static files and the host's token. It is quick if
everything is up to date."""

import logging
import os
import resource
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder

from controlplane.catalogue.joining.credentials import HostNameTaken
from controlplane.platform import staticfiles
from controlplane.platform.datafolder import DataFolderUnusable
from controlplane.platform.http import outage
from controlplane.setup.serving.claims import ServingRefused
from controlplane.setup.serving.embedded import Installation

MAX_OPEN_FILES = 65_536
log = logging.getLogger(__name__)
COPY = "before-the-last-update.sqlite3"
"""Name of the copy of SQLite's database that an update makes, in the same folder."""


def prepare(installation: Installation, report: Callable[[str], None]) -> None:
    raise_file_limit()
    prepare_store(installation, report)
    _write_host_token(installation)


def prepare_store(installation: Installation, report: Callable[[str], None]) -> None:
    """Prepare the folders, the database and the static files, which all programs of the control plane share."""
    installation.make_folders()
    _migrate(report)
    staticfiles.collect(report)


def raise_file_limit() -> None:
    """Raise the limit on open files for this process and its children.

    With the usual limit of 1,024, a client with as many idle connections could keep everybody out.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, room), hard))


def _migrate(report: Callable[[str], None]) -> None:
    _refuse_unusable_database()
    executor = MigrationExecutor(connection)
    if not executor.migration_plan(executor.loader.graph.leaf_nodes()):
        _end_killed_update()
        return
    report("Bringing the database up to date …")
    has_rows = bool(executor.loader.applied_migrations)
    with _unchanged_on_failure() if has_rows else nullcontext():
        call_command("migrate", verbosity=0, interactive=False)


@contextmanager
def _unchanged_on_failure() -> Iterator[None]:
    """Restore the database if the block fails or is interrupted; a failure raises DataFolderUnusable. PostgreSQL
    changes all tables in one transaction. SQLite can't, so its file is copied first; the copy stays until the next
    update."""
    try:
        if connection.vendor == "sqlite":
            with _restored_from_copy(Path(connection.settings_dict["NAME"])):
                yield
        else:
            with transaction.atomic(), connection.execute_wrapper(_check_constraints_first):
                yield
    except Exception as error:
        if _is_lock_missing(error):
            raise DataFolderUnusable(
                "The database can't be brought up to date because another program has locked one of its tables. It is "
                "as it was before. End other control planes, backups and consoles that use it, and start again."
            ) from error
        why = outage.reason(error)
        if isinstance(error, DataFolderUnusable) or (outage.is_away(error) and why == outage.AWAY):
            raise
        if outage.is_away(error):
            raise DataFolderUnusable(
                f"The database can't be brought up to date. {why} It is as it was before, so start again afterwards."
            ) from error
        log.exception("The database can't be brought up to date.")
        raise DataFolderUnusable(
            f"The database can't be brought up to date: {str(error).rstrip('.')}. It is as it was before. Start the "
            "version that created it, and report this message with both versions."
        ) from error


def _is_lock_missing(error: Exception) -> bool:
    """Return whether a statement waited for a lock for longer than database.LOCK_WAIT_S."""
    cause = error.__cause__
    is_busy = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
    return is_busy or getattr(cause, "sqlstate", None) == "55P03"


@contextmanager
def _restored_from_copy(database: Path) -> Iterator[None]:
    """Copy SQLite's database, and restore the copy if the block fails or is interrupted. A killed update's copy is kept
    if the database is still half updated, but not if a backup has since replaced the database."""
    copy, unfinished_copy = database.with_name(COPY), database.with_name(f"{COPY}.unfinished")
    if not (unfinished_copy.exists() and _applied(unfinished_copy) < _applied(database)):
        draft = database.with_name(f"{COPY}.draft")
        draft.unlink(missing_ok=True)
        try:
            _copy(database, draft)
        except DataFolderUnusable:
            draft.unlink(missing_ok=True)  # the disk may be full
            raise
        draft.rename(unfinished_copy)
    try:
        yield
    except BaseException as error:
        connection.close()
        _restore(unfinished_copy, database, error)
        unfinished_copy.unlink()
        raise
    unfinished_copy.replace(copy)


def _restore(copy: Path, database: Path, error: BaseException) -> None:
    """Put the copy back after an update has failed with an error. Raises DataFolderUnusable if that fails, too."""
    try:
        _copy(copy, database)
    except DataFolderUnusable as failure:
        raise DataFolderUnusable(
            f"The update of the database failed ({str(error).rstrip('.') or type(error).__name__}), and so did its "
            f"restoration: {failure} Nothing is lost: {copy} is the database before the update. Remove the cause and "
            "start again, or put that file back and start the version that created it."
        ) from error


def _end_killed_update() -> None:
    """Mark the copy left by a killed update as that of a finished one, because this version uses the database as it is,
    and a later update must not restore an older state."""
    if connection.vendor == "sqlite":
        database = Path(connection.settings_dict["NAME"])
        with suppress(FileNotFoundError):
            database.with_name(f"{COPY}.unfinished").replace(database.with_name(COPY))


def _applied(database: Path) -> set[tuple[str, str]]:
    """Return the migrations that are applied in an SQLite file."""
    try:
        with closing(sqlite3.connect(database)) as connection:
            return set(connection.execute("SELECT app, name FROM django_migrations"))
    except sqlite3.Error as error:
        raise DataFolderUnusable(
            f"{database} can't be read, which an update of the database needs: {error}."
        ) from error


def _copy(source: Path, target: Path) -> None:
    """Copy an SQLite database in one transaction, including what is still in its write-ahead log."""
    try:
        with closing(sqlite3.connect(source)) as source_database, closing(sqlite3.connect(target)) as target_database:
            source_database.backup(target_database)
    except sqlite3.Error as error:
        raise DataFolderUnusable(
            f"{source} can't be copied to {target}, which an update of the database needs: {error}. The disk may be "
            "full, or another program may use the database."
        ) from error


def _check_constraints_first(execute: Callable[..., Any], sql: str, *arguments: Any) -> Any:
    """Check deferred constraints at once before a table is changed, which PostgreSQL refuses while checks are
    pending."""
    if sql.startswith(("ALTER", "CREATE", "DROP")):
        execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED", None, *arguments[1:])
    return execute(sql, *arguments)


def _refuse_unusable_database() -> None:
    """Raise DataFolderUnusable if the database is damaged, or was used by a version that this one can't follow."""
    try:
        applied = MigrationRecorder(connection).applied_migrations()
    except DatabaseError as error:
        if outage.is_away(error):
            raise
        message = f"The database can't be read: {error}. Restore a backup of it. Nothing was changed."
        raise DataFolderUnusable(message) from error
    migrations = MigrationLoader(None).disk_migrations
    known_migrations = migrations.keys() | {
        tuple(name) for migration in migrations.values() for name in migration.replaces
    }
    apps = {app for app, _ in migrations}
    if newer := sorted(f"{app}.{name}" for app, name in applied if app in apps and (app, name) not in known_migrations):
        raise DataFolderUnusable(
            f"The database was brought up to date by a newer version, with {newer[0]}. Start that version, or restore "
            "a backup from before that update. Nothing was changed."
        )
    for migration in migrations.values():
        applied_count = sum(tuple(name) in applied for name in migration.replaces)
        if 0 < applied_count < len(migration.replaces):
            raise DataFolderUnusable(
                "The database was created by an early version of this project and can't be upgraded. To start over, set"
                " CONTROLPLANE_DATA to another folder, or move the data folder away. Nothing was changed."
            )


def _write_host_token(installation: Installation) -> None:
    """Write a token for this machine's host worker unless it has a valid one. The file is renamed into place, so that
    it is never half-written. Raises ServingRefused if another machine has joined under the host's name."""
    from controlplane.catalogue.joining import credentials

    path = installation.host_token_file
    try:
        token = credentials.embedded_token(installation.host_name, path.read_text() if path.exists() else "")
    except HostNameTaken as error:
        raise ServingRefused(str(error)) from None
    if token is None:
        return
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token)
    draft.rename(path)
