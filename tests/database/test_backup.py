"""A backup by the databases' own programs, restored beside the original: every run, event and row is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.database.racing import Racers
from tests.postgres import Postgres

pytestmark = pytest.mark.processes

FILL = """
attempt = an_attempt(run=a_run("kept"))
ingest.accept(attempt, [event(1, "note", text="it’s here"), *[train(n, reward=n / 4) for n in range(2, 1500)]])
folding.fold_all()
"""
LOOK = """
from runs.insight.metrics.series import series
run = Run.objects.get(name="kept")
result = [run.last_seq, run.last_metrics, run.events.filter(kind="note").get().data, MetricRow.objects.count(),
          MetricChunk.objects.count(), series(run, ["reward"], 100)["series"]["reward"]["value"]]
"""


def test_postgresqls_dump_is_restored(postgres: Postgres, tmp_path: Path) -> None:
    if not (shutil.which("pg_dump") and shutil.which("pg_restore")):
        pytest.skip("pg_dump and pg_restore are not installed (package `postgresql-client`)")
    first, second, dump = postgres.url("backed_up"), postgres.url("restored", "template0"), tmp_path / "dump"
    racers = Racers(tmp_path / "one", first, count=1)
    racers.alone(FILL)
    before = racers.alone(LOOK)
    racers.close()
    subprocess.run(["pg_dump", "-Fc", "-f", dump, first], check=True)
    subprocess.run(["pg_restore", "--no-owner", "--exit-on-error", "-d", second, dump], check=True)
    again = Racers(tmp_path / "two", second, count=1)  # it migrates, and finds nothing to do
    assert again.alone(LOOK) == before
    again.close()


def test_sqlites_backup_is_restored_from_a_database_in_use(tmp_path: Path) -> None:
    if not shutil.which("sqlite3"):
        pytest.skip("sqlite3 is not installed (package `sqlite3`)")
    racers = Racers(tmp_path / "one", count=1)
    racers.alone(FILL)
    before = racers.alone(LOOK)
    (tmp_path / "two").mkdir()
    copy = tmp_path / "two" / "controlplane.sqlite3"
    subprocess.run(["sqlite3", tmp_path / "one" / "controlplane.sqlite3", f".backup {copy}"], check=True)
    racers.close()
    assert killed_while_writing(tmp_path / "one" / "controlplane.sqlite3")
    subprocess.run(["sqlite3", tmp_path / "one" / "controlplane.sqlite3", f".restore {copy}"], check=True)
    restored = Racers(tmp_path / "one", count=1)
    assert restored.alone(LOOK) == before
    restored.close()
    again = Racers(tmp_path / "two", count=1)
    assert again.alone(LOOK) == before
    again.close()


def killed_while_writing(database: Path) -> bool:
    """Commit changes that stay in the write-ahead log, which replacing the file would bring back."""
    act = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('delete from runs_metricchunk')"
    kill = "c.execute('update runs_run set last_seq = 0'); c.commit(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", f"{act}; {kill}", database])
    return database.with_name(f"{database.name}-wal").stat().st_size > 0
