"""What sends a run's figures elsewhere, beside a trainer that must not notice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import FAKES, Attempt, attempt, of_process
from workers.contract.run.sinks import LINK, SECRET_PREFIX, SinkSpec
from workers.contract.wire.names import StopMode
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes

KEY = "wandb-key-that-must-not-leak"
SECRETS = {f"{SECRET_PREFIX}wb": json.dumps({"address": "https://wandb.example", "key": KEY})}


@contextmanager
def sent_to(folder: Path, how: str, *, trainer: str, secret: str = "", **settings: Any) -> Iterator[Attempt]:
    command = (sys.executable, str(FAKES / "fake_sinks.py"))
    with attempt(folder, trainer=trainer, sinks_command=command, **settings) as made:
        sink = SinkSpec("wandb", project=how, name="mine", secret=secret)
        made.use(replace(made.spec, run=replace(made.spec.run, sinks=(sink,))))
        made.control.secrets = SECRETS if secret else {}
        yield made


def taken(made: Attempt) -> list[list[Any]]:
    path = made.folder / "sinks" / "1-wandb" / "taken.jsonl"
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


def steps_taken(made: Attempt) -> list[int]:
    return [step for _, step, values in taken(made) if "train/reward" in values]


def notes(made: Attempt) -> str:
    return " ".join(line["data"]["text"] for line in made.control.of_kind("note"))


def test_every_step_arrives_once_before_the_end_and_nothing_is_left(tmp_path: Path) -> None:
    with sent_to(tmp_path, "takes", trainer="steps:5", sinks_end_s=30.0) as made:
        made.launch()
        ended = made.wait_for_end()
        made.wait_until_gone()
    assert steps_taken(made) == [1, 2, 3, 4, 5]
    assert ended["receipt"]["free"] is True
    assert ended["exit_codes"]["sinks"] == 0
    name, link, config, _ = json.loads((made.folder / "sinks/1-wandb/about.json").read_text())
    assert name == "mine"
    assert link.endswith(f"/runs/{made.spec.run.run_id}/")
    assert config["grpo"] == {"max_steps": 5}


def test_the_link_back_is_the_control_planes_public_address_if_it_says_one(tmp_path: Path) -> None:
    with sent_to(tmp_path, "takes", trainer="steps:1", sinks_end_s=30.0) as made:
        made.control.secrets = {LINK: "https://grpo.example.org/runs/r1/"}
        made.launch()
        made.wait_for_end()
        assert LINK not in made.trainer_environment()
    assert json.loads((made.folder / "sinks/1-wandb/about.json").read_text())[1] == "https://grpo.example.org/runs/r1/"


def test_a_sink_that_refuses_once_gets_everything_once(tmp_path: Path) -> None:
    with sent_to(tmp_path, "refuses_once", trainer="steps:5", sinks_end_s=30.0) as made:
        made.launch()
        made.wait_for_end()
    assert steps_taken(made) == [1, 2, 3, 4, 5]


def test_a_sink_that_hangs_ends_with_the_run_which_is_completed(tmp_path: Path) -> None:
    with sent_to(tmp_path, "hangs", trainer="steps:5", sinks_end_s=0.2) as made:
        made.launch()
        ended = made.wait_for_end()
        made.wait_until_gone()
    assert ended["reason"] == "completed"
    assert ended["receipt"]["free"] is True
    assert made.control.train_steps() == [1, 2, 3, 4, 5]


def test_a_stop_ends_a_sink_that_hangs_at_once(tmp_path: Path) -> None:
    with sent_to(tmp_path, "hangs", trainer="forever", sinks_end_s=3600.0) as made:
        made.launch()
        wait_until(lambda: (made.folder / "sinks/1-wandb/once").exists(), made.why)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        made.wait_until_gone()
    assert ended["reason"] == "stopped_by_user"
    assert ended["receipt"]["free"] is True


def test_a_sink_that_crashes_is_started_again_and_goes_on(tmp_path: Path) -> None:
    with sent_to(tmp_path, "crashes_once", trainer="gate", sinks_end_s=30.0) as made:
        made.launch()
        wait_until(lambda: bool(steps_taken(made)), made.why)
        (made.folder / "gate.trainer").touch()
        made.wait_for_end()
    assert steps_taken(made) == made.control.train_steps()
    assert "is restarted" in notes(made)


def test_a_refusal_is_noted_without_the_key_which_no_other_process_has(tmp_path: Path) -> None:
    with sent_to(tmp_path, "refuses", trainer="forever", secret="wb") as made:
        made.launch()
        wait_until(lambda: "401" in notes(made), made.why)
        roles = {line["data"]["role"]: line["data"]["pid"] for line in made.control.of_kind("process_started")}
        trainer = of_process(roles["trainer"], "environ")
        lines = [of_process(row.pid, "cmdline") for row in procfs.table()]
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
    assert "Weights & Biases doesn't accept the run's metrics" in notes(made)
    assert KEY not in notes(made)
    assert KEY.encode() not in trainer
    assert not any(KEY.encode() in line for line in lines)
    assert KEY not in (made.folder.log("sinks")).read_text()
