"""Installations of earlier commits start again: their databases are migrated, and every page opens on their rows."""

from __future__ import annotations

import json
import lzma
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.setup.serving.preparing import COPY
from controlplane.setup.serving.processes import BASE_DIR as ROOT

pytestmark = pytest.mark.processes

STORED = [Path(__file__).parent / f"stored/{commit}.sqlite3.xz" for commit in ("7f8d9e83", "321ad642", "742d8d5e")]
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
def fail(apps, schema_editor):
    raise ValueError("no such thing")
last = importlib.import_module("runs.engine.migrations.{name}").Migration
last.operations = [*last.operations, migrations.RunPython(fail)]
"""


@pytest.fixture(params=STORED, ids=lambda path: path.name.partition(".")[0])
def data(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The data folder of an installation of an earlier commit."""
    (tmp_path / "controlplane.sqlite3").write_bytes(lzma.decompress(request.param.read_bytes()))
    return tmp_path


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, data: Path) -> dict[str, str]:
    """Variables that name its database, which PostgreSQL has as it was stored."""
    if request.param == "sqlite":
        return {}
    name = f"stored_{request.node.callspec.id.replace('-', '_')}"
    url = {"CONTROLPLANE_DATABASE_URL": request.getfixturevalue("postgres").url(name, "template0")}
    copied = python(data, "-m", "tests.database.copied", str(data / "controlplane.sqlite3"), **url)
    assert copied.returncode == 0, copied.stderr
    return url


def test_every_page_opens_on_an_earlier_database(data: Path, database: dict[str, str]) -> None:
    migrated = python(data, "-c", PREPARE.format(before=""), **database)
    assert migrated.returncode == 0, migrated.stderr
    assert "Bringing the database up to date" in migrated.stdout
    opened = python(data, "-m", "tests.database.opened", **database)
    assert opened.returncode == 0, opened.stderr
    answer = json.loads(opened.stdout)
    assert answer["failures"] == []
    assert answer["opened"] > 250


@pytest.mark.parametrize("data", [STORED[-1]], indirect=True, ids=["oldest"])
def test_the_first_and_last_rewards_are_those_that_the_code_would_store(data: Path) -> None:
    assert python(data, "-c", PREPARE.format(before="")).returncode == 0
    compared = python(
        data,
        "-c",
        "import django; django.setup()\n"
        "from runs.engine.models import Run\n"
        "from runs.insight.metrics import trend\n"
        "runs = Run.objects.filter(trend_of__gt=0)\n"
        "assert runs\n"
        "assert all(trend.rebuilt(run)['reward_ends'] == run.reward_ends for run in runs)",
    )
    assert compared.returncode == 0, compared.stderr


@pytest.mark.parametrize("data", [STORED[-1]], indirect=True, ids=["oldest"])
def test_a_database_that_cant_be_migrated_stays_as_it_was(data: Path) -> None:
    before = rows(data)
    name = sorted((ROOT / "runs/engine/migrations").glob("0*.py"))[-1].stem
    failed = python(data, "-c", PREPARE.format(before=BREAK.format(name=name)))
    assert failed.returncode == 1
    assert "The database can't be brought up to date: no such thing. It is as" in failed.stderr.splitlines()[-1]
    assert rows(data) == before
    assert python(data, "-c", PREPARE.format(before="")).returncode == 0
    assert (data / COPY).exists()


def rows(data: Path) -> dict[str, list[Any]]:
    """Everything that the database has, by table."""
    with sqlite3.connect(data / "controlplane.sqlite3") as database:
        names = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        return {name: database.execute(f'select * from "{name}"').fetchall() for name in sorted(names)}


def python(data: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "CONTROLPLANE_DATA": str(data), "DJANGO_SETTINGS_MODULE": "controlplane.settings"} | variables
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, env=env, capture_output=True, text=True)
