"""Installations of earlier commits start again: their databases are migrated, and every page opens on their rows."""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from controlplane.setup.serving.preparing import COPY
from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.postgres import Postgres

pytestmark = pytest.mark.processes

STORED = [Path(__file__).parent / f"stored/{commit}.sqlite3.xz" for commit in ("7f8d9e83", "321ad642", "742d8d5e")]
OLDEST = pytest.mark.parametrize("data", [STORED[-1]], indirect=True, ids=["oldest"])
NEWEST = pytest.mark.parametrize("data", [STORED[0]], indirect=True, ids=["newest"])
"""It lacks few migrations, of which the last one changes `runs_run`: an update takes a second, not five."""
HEADER = 100
"""Bytes of a database's header."""
PREPARE = """
import django
django.setup()
from controlplane.setup.serving import preparing
{before}
preparing._migrate(print)
"""
BREAK = """
import importlib
from django.db import migrations
def act(apps, schema_editor):
    {act}
last = importlib.import_module("runs.engine.migrations.{name}").Migration
last.operations = [*last.operations, migrations.RunPython(act)]
"""
COMPARE = """
import django
django.setup()
from runs.engine.models import Run
from runs.insight.metrics import trend
[run] = Run.objects.filter(trend_of__gt=0)
assert run.reward_ends and trend.rebuilt_columns(run)["reward_ends"] == run.reward_ends
"""


@pytest.fixture(params=STORED, ids=lambda path: path.name.partition(".")[0])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data folder of an installation of an earlier commit."""
    (tmp_path / "controlplane.sqlite3").write_bytes(lzma.decompress(request.param.read_bytes()))
    return tmp_path


@pytest.fixture(scope="module")
def copied() -> set[str]:
    """Databases of PostgreSQL that are as they were stored; copies of them are updated."""
    return set()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, data: Path, copied: set[str]) -> dict[str, str]:
    """Variables that name its database, which PostgreSQL has as it was stored."""
    if request.param == "sqlite":
        return {}
    server: Postgres = request.getfixturevalue("postgres")
    stored = f"stored_{request.node.callspec.params['data'].name.partition('.')[0]}"
    if stored not in copied:
        url = {"CONTROLPLANE_DATABASE_URL": server.url(stored, "template0")}
        done = python(data, "-m", "tests.database.copied", str(data / "controlplane.sqlite3"), **url)
        assert done.returncode == 0, done.stderr
        copied.add(stored)
    return {"CONTROLPLANE_DATABASE_URL": server.url(f"updated_{uuid4().hex}", stored)}


def test_every_page_opens_on_an_earlier_database(data: Path, database: dict[str, str]) -> None:
    opened = python(data, "-m", "tests.database.opened", "--updated", **database)
    assert opened.returncode == 0, opened.stderr
    said, answered = opened.stdout.splitlines()
    assert "Bringing the database up to date" in said
    answer = json.loads(answered)
    assert answer["failures"] == []
    assert answer["opened"] > 250


@OLDEST
def test_the_first_and_last_rewards_are_those_that_the_code_would_store(data: Path) -> None:
    fold_half(data)
    assert update(data).returncode == 0
    compared = python(data, "-c", COMPARE)
    assert compared.returncode == 0, compared.stderr


@pytest.mark.parametrize(
    ("data", "error"),
    [(STORED[-1], 'ValueError("no such thing.")'), (STORED[0], "KeyboardInterrupt")],
    indirect=["data"],
    ids=["failed", "interrupted"],
)
def test_a_failed_or_interrupted_update_leaves_the_database_as_it_was(data: Path, error: str) -> None:
    before = rows(data)
    failed = update(data, f"raise {error}")
    assert failed.returncode != 0
    if "ValueError" in error:
        assert "can't be brought up to date: no such thing. It is as it was" in failed.stderr.splitlines()[-1]
    assert rows(data) == before
    assert update(data).returncode == 0
    assert rows(data, COPY) == before


@NEWEST
def test_an_update_for_which_there_is_no_room_says_so_and_leaves_the_database_as_it_was(data: Path) -> None:
    before = rows(data)
    fill = "cursor = schema_editor.connection.cursor(); cursor.execute('PRAGMA max_page_count=1')"
    failed = update(data, f"{fill}; cursor.execute('CREATE TABLE large AS SELECT zeroblob(100000000) AS content')")
    assert failed.returncode == 1
    assert "disk is full. Free some space there. It is as it was before" in failed.stderr.splitlines()[-1]
    assert rows(data) == before


@NEWEST
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_update_that_gets_no_lock_says_what_to_end_and_changes_nothing(
    data: Path, database: dict[str, str], postgres: Postgres
) -> None:
    url = database["CONTROLPLANE_DATABASE_URL"]
    name = url.partition("@/")[2].partition("?")[0]
    impatient = {"CONTROLPLANE_DATABASE_URL": f"{url}&options={quote('-c lock_timeout=300ms')}"}
    with postgres.connect(name) as other, other.transaction():
        other.execute("LOCK TABLE runs_run IN ACCESS SHARE MODE")
        applied = other.execute("SELECT count(*) FROM django_migrations").fetchone()
        refused = update(data, **impatient)
        assert refused.returncode == 1
        assert "another program has locked one of its tables. It is as it was before. End" in refused.stderr
        assert other.execute("SELECT count(*) FROM django_migrations").fetchone() == applied
    assert update(data, **impatient).returncode == 0


@NEWEST
def test_the_copy_of_a_killed_update_outlives_the_next_one(data: Path) -> None:
    before = rows(data)
    killed = update(data, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert killed.returncode == -9
    assert rows(data) != before
    assert update(data, 'raise ValueError("no such thing")').returncode == 1
    assert rows(data) == before
    assert update(data).returncode == 0


@NEWEST
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda file: os.truncate(file, file.stat().st_size // 2), "can't be read: database disk image is malformed"),
        (lambda file: file.write_bytes(b"PGDMP" + b"x" * 5000), "can't be read: file is not a database"),
        (lambda file: apply(file, "runs", "0999_later"), "a newer version, with runs.0999_later"),
    ],
    ids=["truncated", "another file", "newer"],
)
def test_a_database_that_can_not_be_used_is_refused_unchanged(data: Path, damage: Any, says: str) -> None:
    damage(data / "controlplane.sqlite3")
    before = (data / "controlplane.sqlite3").read_bytes()
    refused = update(data)
    assert refused.returncode == 1
    assert says in refused.stderr.splitlines()[-1]
    assert "Nothing was changed." in refused.stderr.splitlines()[-1]
    assert (data / "controlplane.sqlite3").read_bytes()[HEADER:] == before[HEADER:]  # which says how it is journalled


@NEWEST
def test_a_backup_that_replaced_a_half_updated_database_outlives_a_failed_update(data: Path) -> None:
    stored = (data / "controlplane.sqlite3").read_bytes()
    assert update(data, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -9
    for left in data.glob("controlplane.sqlite3*"):
        left.unlink()
    (data / "controlplane.sqlite3").write_bytes(stored)
    with sqlite3.connect(data / "controlplane.sqlite3") as backup:
        backup.execute("update runs_run set name = 'trained since'")
    later = rows(data)
    assert update(data, 'raise ValueError("no such thing")').returncode == 1
    assert rows(data) == later


@OLDEST
@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_an_update_that_fails_changes_nothing_in_postgresql(data: Path, database: dict[str, str]) -> None:
    assert update(data, 'raise ValueError("no such thing")', **database).returncode == 1
    again = update(data, **database)
    assert again.returncode == 0, again.stderr
    assert "Bringing the database up to date" in again.stdout


def update(data: Path, at_the_end: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Update the database as `up` does; `at_the_end`: what the last migration does besides."""
    name = sorted((ROOT / "runs/engine/migrations").glob("0*.py"))[-1].stem
    before = BREAK.format(name=name, act=at_the_end) if at_the_end else ""
    return python(data, "-c", PREPARE.format(before=before), **variables)


def apply(file: Path, app: str, name: str) -> None:
    with sqlite3.connect(file) as database:
        row = (app, name, "2026-01-01 00:00:00")
        database.execute("insert into django_migrations (app, name, applied) values (?, ?, ?)", row)


def fold_half(data: Path) -> None:
    """Pack the first half of the rewards into a chunk, as folding does."""
    with sqlite3.connect(data / "controlplane.sqlite3") as database:
        [run] = database.execute("select id from runs_run").fetchone()
        query = "select seq, step, t, json_extract(\"values\", '$.reward') from runs_metricrow order by seq"
        points = [row for row in database.execute(query) if row[3] is not None]
        columns = list(zip(*points[: len(points) // 2], strict=True))
        packed = b"".join(array(kind, column).tobytes() for kind, column in zip("qidd", columns, strict=True))
        values = (run, "reward", columns[0][0], columns[0][-1], len(columns[0]), packed)
        insert = (
            "insert into runs_metricchunk (run_id, metric, first_seq, last_seq, points, data) values (?, ?, ?, ?, ?, ?)"
        )
        database.execute(insert, values)
        database.execute("update runs_run set folded_seq = ?", [columns[0][-1]])


def rows(data: Path, name: str = "controlplane.sqlite3") -> dict[str, list[Any]]:
    """Everything that the database has, by table."""
    with sqlite3.connect(data / name) as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {name: database.execute(f'select * from "{name}"').fetchall() for name in sorted(names)}


def python(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CONTROLPLANE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "controlplane.settings"} | variables
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True)
