"""A migrated database, made once for all processes of a test run and copied by them: to migrate takes five seconds."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = "TESTS_RUN_FOLDER"
"""The variable that names the run's folder; tests/environment.py sets it."""
MIGRATE = """
import sys
import django
django.setup()
from django.core.management import call_command
from django.db import connection
call_command("migrate", verbosity=0)
if sys.argv[1:]:
    connection.cursor().execute("VACUUM INTO %s", [sys.argv[1]])
"""


def file() -> Path | None:
    """The SQLite file. None but for the workers of a run: one process alone has nobody to share it with. Waits while
    another process makes it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    folder = Path(os.environ[FOLDER])
    made = folder / "migrated.sqlite3"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = folder / "half"
            migrate(str(half))
            half.rename(made)
    return made


def migrate(*arguments: str, **environment: str) -> None:
    """Migrate the database of the environment, by default an SQLite file that goes again; to `arguments`, a copy."""
    with tempfile.TemporaryDirectory() as data:
        env = {**os.environ, "CONTROLPLANE_DATA": data, "DJANGO_SETTINGS_MODULE": "controlplane.settings"}
        env.pop("CONTROLPLANE_DATABASE_URL", None)
        env.update(environment)
        subprocess.run([sys.executable, "-c", MIGRATE, *arguments], env=env, cwd=ROOT, check=True)


def fill(connection: sqlite3.Connection) -> None:
    """Make the connection's database a copy of it."""
    if made := file():
        with closing(sqlite3.connect(made)) as source:
            source.backup(connection)
