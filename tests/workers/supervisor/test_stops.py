"""Stopping: both roads, both modes, and trees that don't want to go."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import attempt
from workers.contract.wire.names import StopMode
from workers.supervisor.processes import procfs

pytestmark = pytest.mark.processes


def test_save_lets_the_trainer_write_its_checkpoint(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(3)
        made.ask_to_stop(StopMode.SAVE)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert ended["exit_codes"] == {"trainer": 0}
        assert made.control.of_kind("stop_seen")[0]["data"] == {"mode": "save"}
        saved = made.control.of_kind("checkpoint")[0]["data"]
        assert (made.folder / saved["path"] / "model.safetensors").stat().st_size == saved["bytes"]


def test_now_leaves_no_process_and_says_so(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,ignore_term") as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.NOW)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert ended["exit_codes"] == {"trainer": 137}
        assert ended["receipt"]["survivors"] == []
        assert made.control.of_kind("checkpoint") == []


def test_a_stop_comes_with_the_answer_to_a_sync(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        made.control.stop_mode = "now"
        assert made.wait_for_end()["reason"] == "stopped_by_user"
        assert len(made.control.of_kind("stop_seen")) == 1


def test_the_reason_is_recorded_before_any_signal(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
    kinds = [(line["kind"], line["data"].get("phase")) for line in made.outbox()]
    assert kinds.index(("phase", "stopping")) < kinds.index(("process_exited", None))


def test_a_trainer_that_does_not_save_in_time_is_killed(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,no_save,ignore_term", save_deadline_s=0.3) as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.SAVE)
        ended = made.wait_for_end()
        assert ended["reason"] == "stopped_by_user"
        assert "did not save within" in ended["detail"]


def test_now_overtakes_save(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,no_save", save_deadline_s=600) as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.SAVE)
        wait_until(lambda: made.control.of_kind("stop_seen"), made.why)
        made.ask_to_stop(StopMode.NOW)
        made.wait_for_end()
        assert [line["data"]["mode"] for line in made.control.of_kind("stop_seen")] == ["save", "now"]


def test_a_renamed_grandchild_in_a_session_of_its_own_goes_too(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,renamed") as made:
        made.launch()
        made.wait_for_step(2)
        wait_until(lambda: len(made.processes()) >= 3, made.why)
        made.ask_to_stop(StopMode.NOW)
        receipt = made.wait_for_end()["receipt"]
        assert receipt["orphans_found"] == 1
        assert receipt["processes_ended"] == 2
        assert receipt["survivors"] == []


def test_processes_that_fork_while_they_are_killed_go_too(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,storm:60") as made:
        made.launch()
        made.wait_for_step(10)
        made.ask_to_stop(StopMode.NOW)
        receipt = made.wait_for_end()["receipt"]
        assert receipt["survivors"] == []
        assert receipt["orphans_found"] >= 1


def test_what_the_trainer_leaves_behind_at_a_good_end_is_ended(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5,renamed") as made:
        made.launch()
        ended = made.wait_for_end()
        assert ended["reason"] == "completed"
        assert ended["receipt"]["orphans_found"] == 1


def test_a_stop_before_the_claim_is_answered_starts_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.claim_stop = "now"
        made.launch()
        assert made.wait_for_end()["reason"] == "stopped_by_user"
        assert made.control.of_kind("process_started") == []


@pytest.mark.parametrize("road", ["push", "sigterm"])
@pytest.mark.parametrize(("trainer", "reason"), [("steps:3", "completed"), ("steps:3,crash:1", "trainer_exited")])
def test_a_stop_that_comes_with_the_trainers_end_is_not_its_reason(
    tmp_path: Path, trainer: str, reason: str, road: str
) -> None:
    with attempt(tmp_path, trainer=f"{trainer},pause:0.2") as made:
        made.launch()
        made.wait_for_step(1)
        (pid,) = [line["data"]["pid"] for line in made.control.of_kind("process_started")]
        supervisor = made.supervisor()
        procfs.send(supervisor, signal.SIGSTOP)
        wait_until(lambda: (row := procfs.read(pid)) is None or not row.alive, made.why)
        made.ask_to_stop(StopMode.NOW) if road == "push" else procfs.send(supervisor, signal.SIGTERM)
        procfs.send(supervisor, signal.SIGCONT)
        assert made.wait_for_end()["reason"] == reason


def test_sigterm_to_the_supervisor_preempts_its_run(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        procfs.send(made.supervisor(), signal.SIGTERM)
        ended = made.wait_for_end()
        assert ended["reason"] == "preempted"
        assert "SIGTERM" in ended["detail"]
