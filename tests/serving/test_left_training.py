"""Runs outlive the `up` that launched them, and the next one finds them again, on whatever port."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.serving.command import Start, none_left, processes_of, until
from tests.stack import FAKE_TRAINER, Stack, command_of
from tests.workers.test_host_on_the_stack import HOST, LOOK, SUBMIT, a_model

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]


def test_ctrl_c_leaves_a_run_training_the_next_start_finds_it_and_stop_runs_ends_it(
    data: Path, manage: Start, shell: Stack
) -> None:
    settings = {
        "GRPO_HOST_NAME": "testhost",
        "GRPO_TRAINER_COMMAND": command_of(FAKE_TRAINER, FAKE_TRAINER="forever,pause:0.2", FAKE_TRAINER_LIFETIME="390"),
        "GRPO_BACKOFF_MAX_S": "0.5",
    }
    first = manage("up", "--port", "0", **settings)
    first.wait_for("Ctrl-C stops")
    until(lambda: shell.django(HOST))
    model = a_model(shell.installation.models_dir / "small")
    run = shell.django(SUBMIT, model=str(model), steps=100_000)
    until(lambda: shell.django(LOOK, run=run)["rows"] > 0)

    first.interrupt()
    assert "1 run left training" in first.text
    assert any("workers.supervisor" in p.cmdline() for p in processes_of(data))
    before = shell.django(LOOK, run=run)
    assert before["status"] == "running"

    second = manage("up", "--port", "0", "--stop-runs", **settings)
    second.wait_for("1 run went on training")
    until(lambda: shell.django(LOOK, run=run)["rows"] > before["rows"])

    second.interrupt()
    after = shell.django(LOOK, run=run)
    assert (after["status"], after["reason"]) == ("stopped", "stopped_by_user")
    shell.shell.stop()  # it works on this data folder too
    none_left(data)
