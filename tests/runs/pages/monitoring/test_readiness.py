"""/healthz says that the process answers; /readyz whether the control plane does its work, and what is wrong."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client

from runs.engine.monitoring import measured, readiness

pytestmark = pytest.mark.django_db


@pytest.fixture
def ticked(tmp_path: Path, settings: Any) -> Path:
    settings.DATA_DIR = tmp_path
    file = tmp_path / readiness.TICK_FILE
    file.touch()
    return file


def problems() -> list[str]:
    answer = Client().get("/readyz")
    told: list[str] = answer.json()["problems"]
    assert answer.status_code == (503 if told else 200)
    assert answer.json()["ready"] is not bool(told)
    return told


@contextmanager
def no_database() -> Iterator[None]:
    def refuse(*args: object) -> None:
        raise OperationalError("connection to server at 10.0.0.7 failed")

    with connection.execute_wrapper(refuse):
        yield


def test_it_is_ready_when_everything_answers(ticked: Path, redis_url: str) -> None:
    assert problems() == []


def test_a_database_that_is_away_is_said_without_its_address(ticked: Path, redis_url: str) -> None:
    with no_database():
        [problem] = problems()
    assert problem.startswith("The database can't be reached.")
    assert "10.0.0.7" not in problem


def test_a_process_without_a_database_still_answers() -> None:
    with no_database():
        answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"ok": True})


def test_a_database_of_an_earlier_version_is_said(
    ticked: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readiness, "_migrated_to", [])
    [newest] = MigrationLoader(connection).graph.leaf_nodes("accounts")
    MigrationRecorder(connection).record_unapplied(*newest)
    assert "older than this version (missing migrations: 1)" in problems()[0]


def test_a_redis_that_is_away_is_said(ticked: Path, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    assert problems() == ["Redis can't be reached. Start it, or correct REDIS_URL."]


def test_an_old_tick_and_a_missing_one_are_said(ticked: Path, redis_url: str) -> None:
    ten_minutes_ago = time.time() - 600
    os.utime(ticked, (ten_minutes_ago, ten_minutes_ago))
    assert problems()[0].startswith("The last tick was 60")
    ticked.unlink()
    assert problems()[0].startswith("There has been no tick yet.")


def test_durations_of_all_processes_are_one_histogram(redis_url: str) -> None:
    for process in (measured._DurationSums(), measured._DurationSums()):
        process.add(measured.MeasuredDuration.TICK, 0.02)
        process.add(measured.MeasuredDuration.TICK, 60.0)
        process.flush()
    buckets, total = measured.histograms()[measured.MeasuredDuration.TICK]
    assert (dict(buckets)["0.025"], dict(buckets)["+Inf"], total) == (2, 4, pytest.approx(120.04))
