"""`demo` as a person starts it, with the real trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.command import Start, none_left, processes_of, until

pytestmark = [pytest.mark.processes, pytest.mark.trainer, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def trainer(trainer_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRPO_TRAINER_PYTHON", str(trainer_python))


def test_once_trains_stores_every_row_frees_everything_and_says_so_in_one_object(data: Path, manage: Start) -> None:
    demo = manage("demo", "--once", "--json", "--quick", "--steps", "4", "--port", "0")
    code = demo.process.wait(800)
    outcome = json.loads(demo.text.splitlines()[-1])
    assert (code, outcome["status"], outcome["reason"], outcome["steps"]) == (0, "succeeded", "completed", 4)
    assert outcome["rows_written"] == outcome["rows_stored"] > 4
    assert outcome["reward_first10"] is not None
    assert outcome["receipt"]["free"] is True
    assert outcome["receipt"]["survivors"] == []
    none_left(data)


def test_ctrl_c_stops_the_run_and_leaves_no_process_and_a_second_demo_is_told(data: Path, manage: Start) -> None:
    demo = manage("demo", "--quick", "--port", "0")
    demo.wait_for("Ctrl-C stops")
    second = manage("demo", "--port", "0")
    assert second.process.wait(90) == 1
    assert "`manage.py demo`" in second.text
    assert "already serves" in second.text
    until(lambda: any("workers.trainer" in p.cmdline() for p in processes_of(data)))
    assert demo.interrupt() == 0
    assert "Stopping 1 run" in demo.text
    none_left(data)
