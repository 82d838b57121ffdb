"""The sinks with their real packages: what they wrote is read back by the packages' own readers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from workers.contract import (
    AttemptSpec,
    DataSpec,
    EventKind,
    HardwareSpec,
    ModelSpec,
    Placement,
    RewardSpec,
    RunSpec,
    to_dict,
)
from workers.contract.lines import event_line, metrics_line, numbered
from workers.contract.sinks import ENVIRONMENT, PYTHON, SinkSpec

ROOT = Path(__file__).resolve().parents[3]
SINKS_PYTHON = Path(os.environ.get(PYTHON) or ROOT / ENVIRONMENT / "bin" / "python")

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(
        not SINKS_PYTHON.exists(),
        reason="no .venv-sinks: `python3 -m controlplane.bootstrap.on_demand sinks` builds it",
    ),
]
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


def attempt_with(folder: Path, kind: str) -> None:
    """An attempt's folder with three steps in its outbox, and its end."""
    data, reward = DataSpec("sums", 1, "0" * 64, 1), RewardSpec("exact", "exact_match")
    hardware, sink = HardwareSpec("CPU", cpu_slots=1), SinkSpec(kind, project="sums")
    model = ModelSpec("some/model")
    run = RunSpec("r1", "a run", "train", model, data, (reward,), hardware, {"max_steps": 3}, sinks=(sink,))
    (folder / "spec.json").write_text(json.dumps(to_dict(AttemptSpec("r1-1", 1, 1, run, Placement("h")))))
    lines = [metrics_line(EventKind.TRAIN, {"loss": 1.0 / n}, t=1e9 + n, step=n)[0] for n in (1, 2, 4)]
    lines.append(event_line(EventKind.PHASE, {"phase": "stopping", "detail": "", "reason": "completed"}, t=1e9 + 9))
    outbox = [numbered(line, seq) + b"\n" for seq, line in enumerate(lines, 1)]
    (folder / "outbox.jsonl").write_bytes(b"".join(outbox))


def python(*arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), PYTHON: str(SINKS_PYTHON)}
    command = [str(SINKS_PYTHON), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout


def send(folder: Path) -> None:
    python("-m", "workers.sinks", str(folder))


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
