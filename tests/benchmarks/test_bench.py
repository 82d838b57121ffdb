"""`manage.py bench`: what it prints, of a lifecycle benchmark so small that only its shape means anything."""

from __future__ import annotations

import json
import logging
import math
from io import StringIO

import pytest
from django.core.management import CommandError, call_command

from controlplane.setup.management.commands import bench

PROMISED = {
    "launch_ms_p50",
    "launch_ms_p99",
    "stop_ms_p50",
    "stop_ms_p99",
    "rows_lost",
    "web_cpu_percent",
    "row_p99_ms",
    "replay_lines_per_s",
}
SCALE = {
    "runs_live",
    "rows_per_s",
    "row_p95_ms",
    "watched_p95_ms",
    "cpu_per_row_us",
    "list_10k_p95_ms",
    "rows_lost",
}


def test_the_benchmarks_are_found_by_their_files() -> None:
    assert {"lifecycle", "live", "overhead"} <= set(bench.names())
    assert not [name for name in bench.names() if name.startswith(("_", "test_"))]


def test_a_benchmark_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(CommandError, match="lifecycle"):
        call_command("bench", "nothing")


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_small_lifecycle_loses_no_line(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.WARNING, "httpx")
    monkeypatch.setenv("CONTROLPLANE_TICK_S", "1")  # rows are folded by the tick, and the benchmark waits for that
    monkeypatch.setenv("GRPO_ANNOUNCE_S", "1")
    said = StringIO()
    small = ("--launches=1", "--runs=6", "--supervisors=1", "--seconds=2", "--queued=3", "--lines=2500")
    call_command("bench", "lifecycle", "--json", *small, stdout=said)
    figures = json.loads(said.getvalue())
    assert set(figures) >= PROMISED
    assert (figures["rows_lost"], figures["rows_twice"], figures["rows_never_sent"]) == (0, 0, 0)
    assert figures["rows_stored"] == figures["rows_sent"] > 2500
    assert (figures["replay_stored"], figures["replay_failures"], figures["sync_errors"]) == (2500, 0, {})
    assert all(math.isfinite(figures[name]) and figures[name] >= 0 for name in PROMISED)


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_few_live_runs_are_measured_and_lose_no_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "httpx")
    said = StringIO()
    small = ("--store=sqlite", "--runs=6", "--seconds=3", "--watched=1", "--listed=20", "--clicks=1")
    call_command("bench", "scale", "--json", *small, stdout=said)
    figures = json.loads(said.getvalue())["sqlite"]
    assert set(figures) >= SCALE
    assert (figures["runs_live"], figures["rows_lost"], figures["sync_errors"], figures["pages_failed"]) == (
        6,
        0,
        {},
        [],
    )
    assert all(math.isfinite(figures[name]) and figures[name] > 0 for name in SCALE - {"rows_lost"})
