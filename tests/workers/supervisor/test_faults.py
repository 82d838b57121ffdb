"""Whatever dies or goes silent: nothing is lost, nothing is left, nobody else is touched."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT
from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, attempt
from workers.contract.wire.names import FileName, StopMode
from workers.host import reaper
from workers.host.launcher import Launch
from workers.supervisor.processes import procfs
from workers.supervisor.processes.killing import Kill
from workers.supervisor.processes.procfs import Identity

pytestmark = pytest.mark.processes


def steps_written(made: Attempt) -> list[int]:
    """By the trainer, whose last line may be whole only in part."""
    written = (made.folder / "metrics.jsonl").read_bytes().split(b"\n")[:-1]
    return [line["step"] for line in map(json.loads, written) if line["kind"] == "train"]


def everything_is_stored_once(made: Attempt) -> bool:
    return list(made.control.lines.values()) == made.outbox()


def test_a_control_plane_that_accepts_and_stays_silent_does_not_delay_a_stop(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever", http_timeout_s=5.0) as made:
        made.launch()
        made.wait_for_step(2)
        made.control.silent.set()
        made.ask_to_stop(StopMode.NOW)
        wait_until(lambda: made.outbox()[-1]["kind"] == "ended", made.why)
        took = made.outbox()[-1]["t"] - next(line["t"] for line in made.outbox() if line["kind"] == "stop_seen")
        assert took < made.settings.http_timeout_s
        made.control.silent.clear()
        made.control.released.set()
        assert made.wait_for_end()["receipt"]["survivors"] == []


def test_a_control_plane_that_is_away_misses_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:240,pause:0.02,samples:1") as made:
        made.launch()
        made.wait_for_step(3)
        made.control.stop()
        away_since = time.monotonic()
        before = steps_written(made)[-1]
        wait_until(lambda: any(line["step"] == before + 100 for line in made.outbox()), made.why)
        assert time.monotonic() - away_since > 1.8
        assert made.control.train_steps()[-1] < before + 10
        made.control.start()
        assert made.wait_for_end()["reason"] == "completed"
        made.wait_until_gone()
        assert made.control.train_steps() == list(range(1, 241))
        assert everything_is_stored_once(made)
        assert len(made.control.samples) == 240


def test_an_end_is_handed_over_when_the_control_plane_is_back(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5,pause:0.2") as made:
        made.launch()
        made.wait_for_step(1)
        made.control.stop()
        wait_until(lambda: made.outbox()[-1]["kind"] == "ended", made.why)
        assert made.lock_is_held()
        made.control.start()
        made.wait_for_end()
        made.wait_until_gone()
        assert everything_is_stored_once(made)


def test_a_line_that_the_control_plane_refuses_holds_back_none(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5") as made:
        made.control.refuse_lines_with = '"loss": 0.5'
        made.launch()
        assert made.wait_for_end()["reason"] == "completed"
        assert made.control.train_steps() == [1, 3, 4, 5]
        assert any("refused line" in n["data"]["text"] for n in made.control.of_kind("note"))


def test_an_attempt_that_the_control_plane_forgot_is_not_handed_over_for_ever(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:5,pause:0.1") as made:
        made.launch()
        made.wait_for_step(1)
        made.control.refuse["sync"] = 404
        made.wait_until_gone()
        assert made.outbox()[-1]["kind"] == "ended"


def test_a_supervisor_that_is_killed_is_reaped_with_all_that_it_left(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,renamed,ignore_term") as made:
        made.launch()
        made.wait_for_step(3)
        wait_until(lambda: len(made.processes()) >= 3, made.why)
        made.kill_supervisor()
        written = 3
        assert made.launch() == Launch.LOST
        assert made.control.seen
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is True
        assert not made.control.seen
        report = made.control.reaped[0]
        assert report["lock_held"] is False
        assert report["receipt"]["free"] is True
        assert report["receipt"]["processes_ended"] >= 2
        assert made.control.train_steps()[-1] >= written
        assert made.launch() == Launch.ENDED
        assert made.control.train_steps() == steps_written(made)
        assert everything_is_stored_once(made)
        assert made.control.logs["trainer"].startswith(b"fake trainer")


def test_a_reap_while_the_supervisor_lives_does_nothing(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:20,pause:0.05") as made:
        made.launch()
        made.wait_for_step(2)
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is False
        assert made.control.reaped[0]["lock_held"] is True
        assert made.control.reaped[0]["receipt"] is None
        assert made.wait_for_end()["reason"] == "completed"


def test_a_reap_diagnoses_what_the_logs_say(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        made.kill_supervisor()
        with open(made.folder.log("trainer"), "a") as log:
            log.write("OSError: [Errno 28] No space left on device\n")
        reaper.reap(RUN, 1, TOKEN, made.settings)
        reaper.reap(RUN, 1, TOKEN, made.settings)
        (event,) = made.control.of_kind("diagnosed")
        assert event["data"]["diagnoses"][0]["id"] == "disk_full"


def test_a_reap_that_comes_twice_tells_the_same(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        made.kill_supervisor()
        reaper.reap(RUN, 1, TOKEN, made.settings)
        reaper.reap(RUN, 1, TOKEN, made.settings)
        assert made.control.reaped[1]["receipt"] == made.control.reaped[0]["receipt"]
        assert everything_is_stored_once(made)


def test_a_line_that_the_control_plane_refuses_keeps_no_reaper_from_its_report(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.control.refuse["sync"] = 503
        made.launch()
        wait_until(lambda: any(line["step"] == 4 for line in made.outbox()), made.why)
        made.kill_supervisor()
        made.control.refuse.clear()
        made.control.refuse_lines_with = '"loss": 0.5'
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is True
        assert made.control.reaped[0]["receipt"]["free"] is True
        assert made.control.train_steps()[:3] == [1, 3, 4]
        assert [line["seq"] for line in made.outbox()] == list(made.control.lines)


def test_a_reap_of_a_launch_that_never_arrived_says_so(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is True
        assert made.control.reaped[0]["lock_held"] is False
        assert "no folder" in made.control.reaped[0]["detail"]


@pytest.mark.parametrize("boot", ["now", "earlier"])
def test_a_recorded_pid_that_is_somebody_elses_now_is_never_signalled(tmp_path: Path, boot: str) -> None:
    with attempt(tmp_path) as made, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        someone = procfs.identity(other.pid)
        assert someone is not None
        start = someone.start_time - 1 if boot == "now" else someone.start_time
        made.folder.create()
        made.folder.write_spec_once(json.dumps(spec_document(made)))
        (made.folder / "outbox.jsonl").write_text('{"seq":1,"t":1,"kind":"phase","step":null,"data":{}}\n')
        boot_id = procfs.boot_id() if boot == "now" else "an-earlier-boot"
        pids = {"boot_id": boot_id, "processes": [[other.pid, start]], "baselines": {}}
        (made.folder / "pids.json").write_text(json.dumps(pids))
        reaper.reap(RUN, 1, TOKEN, made.settings)
        assert made.control.reaped[0]["receipt"]["processes_ended"] == 0
        assert other.poll() is None
        other.communicate(b"\n", timeout=10)
        assert other.returncode == 0


def test_a_signal_to_a_pid_of_another_process_is_not_sent() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        someone = procfs.identity(other.pid)
        assert someone is not None
        assert procfs.send(Identity(other.pid, someone.start_time - 1), signal.SIGKILL) is False
        other.communicate(b"\n", timeout=10)
        assert other.returncode == 0


def test_a_lock_that_names_somebody_elses_pid_signals_nobody(tmp_path: Path) -> None:
    with attempt(tmp_path) as made, subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        made.folder.create()
        someone = {"boot_id": procfs.boot_id(), "pid": other.pid, "start_time": procfs.read(other.pid).start_time}  # type: ignore[union-attr]
        (made.folder / "supervisor.lock").write_text(json.dumps(someone))
        reaper.reap(RUN, 1, TOKEN, made.settings, {"host": "testhost", "cpu_slots": [0]})
        assert made.control.reaped[0]["receipt"]["processes_ended"] == 0
        assert other.poll() is None
        other.communicate(b"\n", timeout=10)


@pytest.mark.parametrize("place", ["10", "1 (deleted)", "../elsewhere"])
def test_who_works_in_another_folder_is_never_signalled(tmp_path: Path, place: str) -> None:
    with attempt(tmp_path) as made:
        folder = made.folder.path.parent / place
        folder.mkdir(parents=True)
        made.folder.create()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, cwd=folder) as other:
            assert reaper.leftovers(made.folder) == []
            other.communicate(b"\n", timeout=10)


def test_who_has_a_shell_in_the_folder_is_never_signalled(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.folder.create()
        ours, theirs = os.openpty()
        program = [sys.executable, "-c", "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); input()"]
        with subprocess.Popen(program, stdin=theirs, cwd=made.folder.path, start_new_session=True) as other:
            wait_until(lambda: (row := procfs.read(other.pid)) is not None and row.tty != 0)
            assert reaper.leftovers(made.folder) == []
            os.write(ours, b"\n")
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("user", [None, 65534])
def test_another_user_who_works_in_the_folder_is_never_signalled(tmp_path: Path, user: int | None) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can start a process of somebody else's")
    with attempt(tmp_path) as made:
        made.folder.create()
        with subprocess.Popen(["sleep", "60"], cwd=made.folder.path, user=user) as other:
            wait_until(lambda: procfs.user(other.pid) == (user or 0))
            found = [row.pid for row in reaper.leftovers(made.folder)]
            other.kill()
        assert found == ([] if user else [other.pid])


def test_a_kill_never_signals_who_has_a_pid_now_that_was_seen_before() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        row = procfs.read(other.pid)
        assert row is not None
        rounds = iter([[row._replace(start_time=row.start_time - 1)]] * 10)
        kill = Kill(lambda: next(rounds, []), now=0.0, grace_s=0.0, deadline_s=5.0)
        assert kill.tick(0.0) is True
        assert other.poll() is None
        other.communicate(b"\n", timeout=10)
        assert other.returncode == 0


IN_ANOTHER_BOOT = """
mount --bind "$1" /proc/sys/kernel/random/boot_id || exit 77
shift
exec "$@"
"""
REAP = """
import os, sys
from workers.host import reaper
from workers.settings import HostSettings
reaper.reap(sys.argv[1], 1, sys.argv[2], HostSettings.from_env(), {"host": "testhost", "cpu_slots": [0]})
"""


def test_after_a_reboot_no_recorded_pid_counts_and_what_lay_in_the_outbox_comes(tmp_path: Path) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("11111111-2222-3333-4444-555555555555\n")
    with attempt(tmp_path, trainer="forever") as made, subprocess.Popen(["sleep", "60"]) as other:
        made.control.refuse["sync"] = 503
        made.launch()
        wait_until(lambda: any(line["step"] == 3 for line in made.outbox()), made.why)
        made.kill_leftovers()  # the host goes down with all that ran on it
        wait_until(lambda: not made.lock_is_held() and not made.processes(), made.why)
        del made.control.refuse["sync"]
        recorded = json.loads((made.folder / "pids.json").read_text())
        start = procfs.read(other.pid).start_time  # type: ignore[union-attr]
        recorded["processes"] = [[other.pid, start]]
        (made.folder / "pids.json").write_text(json.dumps(recorded))
        reap = [sys.executable, "-c", REAP, RUN, TOKEN]
        enter = ["unshare", "--mount", "sh", "-c", IN_ANOTHER_BOOT, "sh", str(boot)]
        done = subprocess.run([*enter, *reap], env={**os.environ, **made.settings.as_env()}, cwd=ROOT)
        survived = other.poll() is None
        other.kill()
        if done.returncode in (1, 77) and not made.control.reaped:
            pytest.skip("no other boot id can be mounted here")
        assert survived
        report = made.control.reaped[0]
        assert (report["receipt"]["processes_ended"], report["receipt"]["free"]) == (0, True)
        assert made.control.train_steps()[:3] == [1, 2, 3]
        assert everything_is_stored_once(made)


def spec_document(made: Attempt) -> dict[str, object]:
    from workers.contract.wire.documents import to_dict

    return to_dict(made.spec)


def half_made(made: Attempt) -> Path:
    """What a killed job leaves."""
    folder = made.folder / FileName.UNFINISHED
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"half")
    return folder


def test_a_model_that_is_half_made_goes_with_its_job(tmp_path: Path) -> None:
    with attempt(tmp_path / "stopped", trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        left = half_made(made)
        made.ask_to_stop(StopMode.NOW)
        made.wait_until_gone()
        assert not left.exists()
    with attempt(tmp_path / "killed", trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        left = half_made(made)
        made.kill_supervisor()
        assert reaper.reap(RUN, 1, TOKEN, made.settings) is True
        assert not left.exists()
