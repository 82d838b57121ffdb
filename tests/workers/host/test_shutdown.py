"""A host that shuts down ends its runs by real supervisors, which say why, and save first if they are asked to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from tests.workers.supervisor.attempts import Attempt, attempt
from workers.contract.wire.names import StopMode
from workers.host import shutdown
from workers.settings import AtStop, StopReason
from workers.supervisor.commands import SOURCE_ROOT

pytestmark = pytest.mark.processes


def test_a_host_that_shuts_down_ends_its_runs_and_says_so(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,ignore_term") as made:
        made.launch()
        made.wait_for_step(2)
        assert shutdown.end_runs(made.settings, save=False) == 0
        ended = made.wait_for_end()
        assert (ended["reason"], ended["exit_codes"]) == ("host_shutdown", {"trainer": 137})
        assert ended["receipt"]["survivors"] == []
        assert made.control.of_kind("checkpoint") == []


def test_runs_save_first_if_the_host_asks(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        assert shutdown.end_runs(made.settings, save=True) == 0
        ended = made.wait_for_end()
        assert (ended["reason"], ended["exit_codes"]) == ("host_shutdown", {"trainer": 0})
        saved = made.control.of_kind("checkpoint")[0]["data"]
        assert (made.folder / saved["path"] / "model.safetensors").exists()


def test_a_run_that_does_not_save_in_time_ends_all_the_same(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,no_save,ignore_term", save_deadline_s=0.3) as made:
        made.launch()
        made.wait_for_step(2)
        assert shutdown.end_runs(made.settings, save=True) == 0
        ended = made.wait_for_end()
        assert ended["reason"] == "host_shutdown"
        assert "did not save within" in ended["detail"]


def test_a_users_stop_stays_the_reason_when_the_host_shuts_down_on_it(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,no_save,ignore_term", save_deadline_s=600) as made:
        made.launch()
        made.wait_for_step(2)
        made.ask_to_stop(StopMode.SAVE)
        wait_until(lambda: made.control.of_kind("stop_seen"), made.why)
        assert shutdown.end_runs(made.settings, save=False) == 0
        assert made.wait_for_end()["reason"] == "stopped_by_user"


def test_a_host_without_runs_has_nothing_to_wait_for(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        assert shutdown.end_runs(made.settings, save=True) == 0


SERVE = """
import sys
from pathlib import Path
from workers.host import service
from workers.host.membership import Membership

member = Membership(sys.argv[1], "testhost", "redis://127.0.0.1:1/0")
sys.exit(service.run(member, Path(sys.argv[2]), report=print))
"""


@contextmanager
def host_program(
    made: Attempt, at_stop: AtStop, reason: StopReason = StopReason.HOST_SHUTDOWN
) -> Iterator[subprocess.Popen[bytes]]:
    """The host's program as a container starts it; its worker waits for a Redis."""
    environment = {**os.environ, **made.settings.as_env(), "GRPO_AT_STOP": at_stop, "GRPO_STOP_REASON": reason}
    argv = [sys.executable, "-c", SERVE, made.settings.control_url, made.settings.runs_dir.parent / "host"]
    program = subprocess.Popen(argv, env=environment, cwd=SOURCE_ROOT)
    try:
        wait_until(lambda: psutil.Process(program.pid).children())
        yield program
    finally:
        program.kill()
        program.wait()


def test_a_stopped_container_ends_its_runs_before_it_ends_itself(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made, host_program(made, AtStop.SAVE) as program:
        made.launch()
        made.wait_for_step(2)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        assert made.control.ended is not None
        assert made.control.ended["reason"] == "host_shutdown"
        assert not made.lock_is_held()


def test_on_a_machine_that_a_cluster_takes_back_runs_save_and_end_as_preempted(tmp_path: Path) -> None:
    preempted = StopReason.HOST_PREEMPTED
    with attempt(tmp_path, trainer="forever") as made, host_program(made, AtStop.SAVE, preempted) as program:
        made.launch()
        made.wait_for_step(2)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        assert made.control.ended is not None
        assert made.control.ended["reason"] == "host_preempted"
        assert made.control.of_kind("checkpoint")


def test_on_a_bare_host_runs_outlive_the_program(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made, host_program(made, AtStop.LEAVE) as program:
        made.launch()
        made.wait_for_step(2)
        program.send_signal(signal.SIGTERM)
        assert program.wait(60) == 0
        before = max(made.control.train_steps())
        made.wait_for_step(before + 2)
        made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["reason"] == "stopped_by_user"
