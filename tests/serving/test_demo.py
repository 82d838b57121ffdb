"""`demo` as a person starts it, with the real trainer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serving.command import Start, none_left, processes_of
from tests.stack import FAKE_TRAINER, command_of
from tests.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.trainer]


@pytest.mark.telling
def test_once_trains_stores_every_row_frees_everything_and_says_so_in_one_object(
    data: Path, manage: Start, trainer_python: Path
) -> None:
    arguments = ("demo", "--once", "--json", "--quick", "--steps", "4", "--port", "0")
    demo = manage(*arguments, GRPO_TRAINER_PYTHON=str(trainer_python))
    code = demo.process.wait(800)
    outcome = json.loads(demo.text.splitlines()[-1])
    assert (code, outcome["status"], outcome["reason"], outcome["steps"]) == (0, "succeeded", "completed", 4)
    assert outcome["rows_written"] == outcome["rows_stored"] > 4
    assert outcome["reward_first10"] is not None
    assert outcome["receipt"]["free"] is True
    assert outcome["receipt"]["survivors"] == []
    none_left(data)


def test_ctrl_c_stops_the_run_and_leaves_no_process_and_a_second_demo_is_told(
    data: Path, manage: Start, trainer_python: Path
) -> None:
    """The model is that of the demo before; nobody needs a trainer that learns."""
    fake = command_of(FAKE_TRAINER, FAKE_TRAINER="forever,pause:0.1")
    demo = manage("demo", "--quick", "--port", "0", GRPO_TRAINER_PYTHON=str(trainer_python), GRPO_TRAINER_COMMAND=fake)
    demo.wait_for("Ctrl-C stops")
    second = manage("demo", "--port", "0", GRPO_TRAINER_PYTHON=str(trainer_python))
    assert second.process.wait(90) == 1
    assert "`manage.py demo`" in second.text
    assert "already serves" in second.text
    wait_until(lambda: any(str(FAKE_TRAINER) in p.cmdline() for p in processes_of(data)))
    assert demo.interrupt() == 0
    assert "Stopping 1 run" in demo.text
    none_left(data)
