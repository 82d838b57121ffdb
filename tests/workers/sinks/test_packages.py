"""The sinks with their real packages: what they wrote is read back by the packages' own readers."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fakes import fake_wandb
from tests.waiting import wait_until
from tests.workers.sinks.outboxes import (
    ENDPOINT,
    PAGE,
    SINKS_PYTHON,
    attempt_with,
    attempt_without_lines,
    losses,
    needs_sinks_python,
    python,
    send,
    sending,
    write_steps,
)
from workers.contract.run.sinks import STATE
from workers.contract.wire.names import EndReason
from workers.sinks.program import UNSENT_EXIT_CODE

pytestmark = [pytest.mark.processes, needs_sinks_python]
READ_EVENTS = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]); events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""
READ_TRACKIO = """
import json, os, sys
os.environ["TRACKIO_DIR"] = sys.argv[1]
from trackio.sqlite_storage import SQLiteStorage
print(json.dumps([[row["step"], row["train/loss"]] for row in SQLiteStorage.get_logs("sums", "a run")]))
"""


def cut_cursor(path: Path) -> None:
    """As after a crash between the sink's write and the cursor's."""
    path.unlink()


def read_events(folder: Path) -> Any:
    return json.loads(python("-c", READ_EVENTS, str(folder / "sinks" / "1-tensorboard")))


def test_tensorboard_reads_each_step_once_also_after_a_restart(tmp_path: Path) -> None:
    attempt_with(tmp_path, "tensorboard")
    send(tmp_path)
    first = read_events(tmp_path)
    cut_cursor(tmp_path / "sinks/1-tensorboard/cursor.json")
    send(tmp_path)
    assert first == read_events(tmp_path) == {"train/loss": [[1, 1.0], [2, 0.5], [4, 0.25]]}


def test_trackio_reads_each_step_once_also_after_a_restart(tmp_path: Path) -> None:
    attempt_with(tmp_path, "trackio")
    send(tmp_path)
    cut_cursor(tmp_path / "sinks/1-trackio/cursor.json")
    send(tmp_path)
    assert json.loads(python("-c", READ_TRACKIO, str(tmp_path / "sinks/1-trackio"))) == [[1, 1.0], [2, 0.5], [4, 0.25]]


def test_wandb_without_a_key_leaves_a_file_to_sync(tmp_path: Path) -> None:
    attempt_with(tmp_path, "wandb")
    send(tmp_path)
    files = list(tmp_path.glob("sinks/1-wandb/wandb/offline-run-*/run-r1-1.wandb"))
    assert len(files) == 1
    assert b"train/loss" in files[0].read_bytes()


def test_a_trackio_server_has_each_step_once_also_after_a_restart(tmp_path: Path) -> None:
    attempt_with(tmp_path, "trackio", secret=ENDPOINT)
    with trackio_server(tmp_path) as (address, write_token):
        assert sending(tmp_path, address, key=write_token).wait(120) == 0
        cut_cursor(tmp_path / "sinks/1-trackio/cursor.json")
        assert sending(tmp_path, address, key=write_token).wait(120) == 0
        asked = {"project": "sums", "run": "a run", "run_id": "r1-1"}
        rows = httpx.post(f"{address}/api/get_logs", json=asked, timeout=60).json()["data"]
    assert [[row["step"], row["train/loss"]] for row in rows] == losses((1, 2, 4))


@contextmanager
def trackio_server(folder: Path) -> Iterator[tuple[str, str]]:
    """The address and the write token of a real one."""
    own = {"TRACKIO_DIR": str(folder / "server"), "HOME": str(folder), "BROWSER": "/bin/true", "PYTHONUNBUFFERED": "1"}
    argv = [str(SINKS_PYTHON.with_name("trackio")), "show", "--host", "127.0.0.1"]
    log = folder / "server.log"
    with open(log, "wb") as out:
        process = subprocess.Popen(argv, env={"PATH": os.environ["PATH"], **own}, stdout=out, stderr=out)
    try:
        wait_until(lambda: process.poll() is not None or "write_token=" in log.read_text(), log.read_text)
        found = re.search(r"(http://[^/?]+)/?\?(?:\S*&)?write_token=(\S+)", log.read_text())
        assert found, log.read_text()
        yield found[1], found[2]
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("key", "header"), [("t0ken", "Bearer t0ken"), ("anna:pass", f"Basic {b64encode(b'anna:pass').decode()}")]
)
def test_mlflow_is_asked_with_a_token_or_a_name_and_password(tmp_path: Path, key: str, header: str) -> None:
    attempt_without_lines(tmp_path, "mlflow", secret=ENDPOINT)
    write_steps(tmp_path, (1,), end=EndReason.COMPLETED)
    with refusing() as (address, authorizations):
        assert sending(tmp_path, address, key=key).wait(120) == UNSENT_EXIT_CODE
    assert set(authorizations) == {header}
    assert "401" in (tmp_path / "sinks" / STATE).read_text()


@contextmanager
def refusing() -> Iterator[tuple[str, list[str]]]:
    """A server that refuses everything, and what it was asked with."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_error(401)

        do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def test_wandb_sends_what_a_killed_process_had_not_sent_and_nothing_twice(tmp_path: Path) -> None:
    attempt_without_lines(tmp_path, "wandb", secret=ENDPOINT, project="team/sums")
    with fake_wandb.running() as server:
        write_steps(tmp_path, range(1, 20))
        sinks = sending(tmp_path, server.address, key="a" * 40)
        wait_until(lambda: len(server.lines) >= 18, (tmp_path / "sinks.log").read_text)
        sinks.kill()
        sinks.wait()
        write_steps(tmp_path, range(20, 30), end=EndReason.TRAINER_EXITED)
        assert sending(tmp_path, server.address, key="a" * 40).wait(120) == 0
    assert server.history() == losses(range(1, 30))
    run = server.runs["r1-1"]
    assert (run["entity"], run["project"], run["displayName"], run["notes"]) == ("team", "sums", "a run", PAGE)
    assert json.loads(run["config"])["grpo"]["value"] == {"max_steps": 3}
    assert server.exit_code == 1
