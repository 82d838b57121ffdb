"""Runs outlive the `up` that launched them, whether it ended in order or was killed: the next one, on whatever port,
finds them again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.serving.command import Command, Start, none_left, processes_of
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.waiting import wait_until
from tests.workers.host.test_host_on_the_stack import HOST, LOOK, SUBMIT, a_model

pytestmark = pytest.mark.processes

SETTINGS = {
    "GRPO_HOST_NAME": "testhost",
    "GRPO_TRAINER_COMMAND": command_of(FAKE_TRAINER, FAKE_TRAINER="forever,pause:0.1", FAKE_TRAINER_LIFETIME="390"),
    "GRPO_CPU_SLOTS": "1",
    "GRPO_BACKOFF_MAX_S": "0.5",
}
STOP = """
from runs.engine.scheduling import stopping
from runs.engine.models import Attempt
from tests.runs import builders
from workers.contract.wire.names import StopMode
stopping.request_stop(Attempt.objects.get(run_id=run), StopMode.SAVE, builders.a_user())
"""


def test_runs_outlive_a_ctrl_c_and_a_kill_and_stop_runs_ends_them(data: Path, manage: Start, shell: Stack) -> None:
    first = manage("up", "--port", "0", **SETTINGS)
    first.wait_for("Ctrl-C stops")
    wait_until(lambda: shell.django(HOST))
    model = str(a_model(shell.installation.models_dir / "small"))
    trains = shell.django(SUBMIT, model=model, steps=100_000)
    wait_until(lambda: shell.django(LOOK, run=trains)["rows"] > 0)
    waits = shell.django(SUBMIT, model=model, steps=100_000)
    wait_until(lambda: "CPU slot" in shell.django(LOOK, run=waits)["waits"])

    first.interrupt()
    assert "Left training: 1 run." in first.text
    assert any("workers.supervisor" in p.cmdline() for p in processes_of(data))
    before = shell.django(LOOK, run=trains)
    assert before["status"] == "running"
    second = manage("up", "--port", "0", **SETTINGS)
    goes_on(shell, second, trains, before)

    before = shell.django(LOOK, run=trains)
    second.process.kill()
    third = manage("up", "--port", "0", "--stop-runs", **SETTINGS)
    goes_on(shell, third, trains, before)
    assert shell.django(LOOK, run=waits)["status"] == "queued"
    shell.django(STOP, run=trains)
    wait_until(lambda: shell.django(LOOK, run=waits)["rows"] > 0)
    assert shell.django(LOOK, run=trains)["reason"] == "stopped_by_user"
    assert steps_stored(shell, trains) == steps_written(data, trains)

    third.interrupt()
    after = shell.django(LOOK, run=waits)
    assert (after["status"], after["reason"]) == ("stopped", "stopped_by_user")
    shell.shell.stop()  # it works on this data folder too
    none_left(data)


def goes_on(shell: Stack, up: Command, run: str, before: dict[str, Any]) -> None:
    up.wait_for("Still training from an earlier start: 1 run")
    wait_until(lambda: shell.django(LOOK, run=run)["rows"] > before["rows"])


def steps_stored(shell: Stack, run: str) -> list[Any]:
    code = """
from runs.insight.metrics.series import series
from runs.engine.models import Run
result = series(Run.objects.get(pk=run), ["reward"], 100_000)["series"]["reward"]["step"]
"""
    return list(shell.django(code, run=run))


def steps_written(data: Path, run: str) -> list[Any]:
    lines = map(json.loads, (data / "runs" / run / "1" / "metrics.jsonl").read_text().splitlines())
    return [line["step"] for line in lines if line["kind"] == "train"]
