"""Attempts' folders whose outbox has steps to send, and the sinks' process on them with their own interpreter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from workers.contract.reports.lines import event_line, metrics_line, numbered
from workers.contract.run.hardware import HardwareSpec
from workers.contract.run.sinks import ENVIRONMENT, LINK, PYTHON, SECRET_PREFIX, SinkSpec
from workers.contract.run.spec import AttemptSpec, DataSpec, ModelSpec, Placement, RewardSpec, RunSpec
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EndReason, EventKind

ROOT = Path(__file__).resolve().parents[3]
SINKS_PYTHON = Path(os.environ.get(PYTHON) or ROOT / ENVIRONMENT / "bin" / "python")
ENDPOINT = "THERE"
PAGE = "https://grpo.example.test/runs/r1/"

needs_sinks_python = pytest.mark.skipif(
    not SINKS_PYTHON.exists(),
    reason="no .venv-sinks: `python3 -m controlplane.setup.bootstrap.on_demand sinks` builds it",
)


def attempt_with(folder: Path, kind: str, *, secret: str = "") -> None:
    """An attempt's folder with three steps in its outbox, and its end."""
    attempt_without_lines(folder, kind, secret=secret)
    write_steps(folder, (1, 2, 4), end=EndReason.COMPLETED)


def attempt_without_lines(folder: Path, kind: str, *, secret: str = "", project: str = "sums") -> None:
    data, reward = DataSpec("sums", 1, "0" * 64, 1), RewardSpec("exact", "exact_match")
    hardware, sink = HardwareSpec("CPU", cpu_slots=1), SinkSpec(kind, project=project, secret=secret)
    model = ModelSpec("some/model")
    run = RunSpec("r1", "a run", "train", model, data, (reward,), hardware, {"max_steps": 3}, sinks=(sink,))
    (folder / "spec.json").write_text(json.dumps(to_dict(AttemptSpec("r1-1", 1, 1, run, Placement("h")))))
    (folder / "outbox.jsonl").touch()


def write_steps(folder: Path, steps: Iterable[int], *, end: str = "") -> None:
    """Append a line for each step, with 1/step as its loss, and the line that says why the attempt ends."""
    outbox = folder / "outbox.jsonl"
    lines = [metrics_line(EventKind.TRAIN, {"loss": 1.0 / n}, t=1e9 + n, step=n)[0] for n in steps]
    if end:
        lines.append(event_line(EventKind.PHASE, {"phase": "stopping", "detail": "", "reason": end}, t=1e9))
    first = outbox.read_bytes().count(b"\n") + 1
    with open(outbox, "ab") as file:
        file.writelines(numbered(line, seq) + b"\n" for seq, line in enumerate(lines, first))


def losses(steps: Iterable[int]) -> list[list[float]]:
    return [[n, 1.0 / n] for n in steps]


def python(*arguments: str) -> str:
    command = [str(SINKS_PYTHON), *arguments]
    return subprocess.run(command, env=_variables(), check=True, capture_output=True, text=True, timeout=120).stdout


def send(folder: Path) -> None:
    python("-m", "workers.sinks", str(folder))


def sending(folder: Path, address: str, key: str = "") -> subprocess.Popen[bytes]:
    """The sinks' process of a folder whose sink has the endpoint ENDPOINT."""
    endpoint = {SECRET_PREFIX + ENDPOINT: json.dumps({"address": address, "key": key})}
    command = [str(SINKS_PYTHON), "-m", "workers.sinks", str(folder)]
    with open(folder / "sinks.log", "ab") as log:
        return subprocess.Popen(command, env={**_variables(), **endpoint, LINK: PAGE}, stdout=log, stderr=log)


def _variables() -> dict[str, str]:
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "HOME": "/nonexistent"}
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), PYTHON: str(SINKS_PYTHON), **quiet}
