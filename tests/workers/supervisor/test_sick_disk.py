"""A disk that fails otherwise than by being full: read-only, stale, sick. The run ends, and leaves nothing."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, attempt
from tests.workers.supervisor.test_disk import written_steps
from workers.contract.reports.lines import object_of
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import EventKind
from workers.host import reaper
from workers.supervisor.processes.folder import AttemptFolder
from workers.supervisor.reports.outbox import Outbox
from workers.supervisor.reports.tail import Tail

pytestmark = pytest.mark.processes


def test_a_disk_that_fails_in_another_way_ends_the_run_too_and_every_line_comes(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever,renamed,ignore_term") as made:
        made.launch()
        made.wait_for_step(3)
        # As with a file system that turns read-only, each write fails; the kernel calls this one EFBIG.
        resource.prlimit(made.supervisor().pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        ended = made.wait_for_end()
        assert (ended["reason"], ended["detail"]) == (
            "supervisor_error",
            "The run's folder on the host can't be used: File too large.",
        )
        assert (ended["receipt"]["survivors"], ended["receipt"]["free"]) == ([], True)
        made.wait_until_gone()
    assert list(made.control.lines) == list(range(1, len(made.control.lines) + 1))


def test_an_outbox_that_is_no_file_keeps_its_lines_in_memory(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path, first_seq=1)
    outbox.append(EventKind.NOTE, {}, t=1.0)
    outbox.flush_to_disk()
    assert outbox.trouble is not None
    assert [line.seq for line in outbox.read_after(0, max_bytes=1000)[0]] == [1]
    outbox.close()


def test_a_folder_that_can_not_be_looked_at_is_not_taken_for_lost(tmp_path: Path) -> None:
    (tmp_path / "run" / "1").mkdir(parents=True)
    folder = AttemptFolder(tmp_path / "run" / "1")
    folder.hold()
    (tmp_path / "run").rename(tmp_path / "elsewhere")
    (tmp_path / "run").symlink_to("run")  # ELOOP
    assert folder.check()
    (tmp_path / "run").unlink()
    assert not folder.check()


def test_a_file_that_can_not_be_read_has_an_end_and_says_why(tmp_path: Path) -> None:
    tail = Tail(tmp_path, object_of)
    assert tail.read() == []
    assert tail.is_at_end()
    assert tail.trouble is not None
    tail.close()


# --- the reaper -----------------------------------------------------------------------------------------------


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """As seen by whoever opens something from now on."""
    aside = folder.with_name(
        f"{folder.name}-read-only"
    )  # whoever writes through a mount keeps it from becoming read-only
    aside.mkdir()
    done = subprocess.run(["mount", "--bind", str(folder), str(aside)], capture_output=True)
    if done.returncode:
        pytest.skip(f"nothing can be mounted here: {done.stderr.decode().strip()}")
    subprocess.run(["mount", "-o", "remount,bind,ro", str(aside)], check=True)
    subprocess.run(["mount", "--bind", str(aside), str(folder)], check=True)
    subprocess.run(["umount", str(aside)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def left_behind(tmp_path: Path) -> Iterator[Attempt]:
    """A dead supervisor's attempt, of which the control plane has no line."""
    with attempt(tmp_path, trainer="forever,renamed") as made:
        made.control.refuse["sync"] = 503
        made.launch()
        wait_until(lambda: [line["kind"] for line in made.outbox()].count("train") > 4, made.why)
        made.kill_supervisor()
        del made.control.refuse["sync"]
        yield made


def test_a_reaper_in_a_folder_that_is_read_only_ends_and_proves_and_hands_over(tmp_path: Path) -> None:
    with left_behind(tmp_path) as made:
        with read_only(made.settings.runs_dir):
            assert reaper.reap(RUN, 1, TOKEN, made.settings, to_dict(made.spec.placement)) is True
            assert made.processes() == []
        report = made.control.reaped[0]
        assert (report["receipt"]["processes_ended"] >= 1, report["receipt"]["free"]) == (True, True)
        assert made.control.train_steps() == written_steps(made)
        assert len(made.outbox()) < len(made.control.lines)


def test_a_supervisor_that_lives_is_seen_in_a_folder_that_is_read_only(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        with read_only(made.settings.runs_dir):
            assert made.lock_is_held()
            assert reaper.reap(RUN, 1, TOKEN, made.settings) is False
            assert made.wait_for_end()["reason"] == "trainer_exited"  # it opens its file anew for each line


def test_a_block_of_zeros_among_the_lines_costs_no_other_line(tmp_path: Path) -> None:
    with left_behind(tmp_path) as made:
        path = made.folder / "outbox.jsonl"
        lines = path.read_bytes().splitlines()
        lost = next(n for n, line in enumerate(made.outbox()) if line["kind"] == "train")
        lines[lost] = bytes(len(lines[lost]))
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        reaper.reap(RUN, 1, TOKEN, made.settings)
        assert made.control.reaped[0]["receipt"]["free"] is True
        assert list(made.control.lines) == list(range(1, len(made.control.lines) + 1))
        assert made.control.lines[lost + 1]["data"]["text"] == "A line was lost on the host's disk."
        assert made.control.train_steps() == written_steps(made)[1:]


def test_a_trainers_file_that_can_not_be_read_keeps_no_receipt_back(tmp_path: Path) -> None:
    with left_behind(tmp_path) as made:
        for pid in made.processes():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not made.processes(), made.why)
        (made.folder / "metrics.jsonl").unlink()
        (made.folder / "metrics.jsonl").mkdir()
        reaper.reap(RUN, 1, TOKEN, made.settings)
        report = made.control.reaped[0]
        assert report["receipt"]["free"] is True
        assert "The trainer's last lines could not be read" in report["detail"]
        assert list(made.control.lines.values()) == made.outbox()
