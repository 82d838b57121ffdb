"""The run's folder is removed: under a living supervisor, with a dead one, and only its lock."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fake_control import TOKEN
from tests.waiting import wait_until
from tests.workers.supervisor.attempts import RUN, Attempt, attempt
from tests.workers.supervisor.servers import server_attempt
from tests.workers.supervisor.test_gpus import gpu_attempt
from workers.contract.run import corpora
from workers.contract.wire.documents import to_dict
from workers.contract.wire.names import StopMode
from workers.host import reaper
from workers.host.launcher import Launch
from workers.supervisor.processes import procfs
from workers.supervisor.processes.folder import AttemptFolder, Lock, _socket_name
from workers.supervisor.processes.gpus import GpuReading

pytestmark = pytest.mark.processes


def remove(path: Path) -> None:
    """As often as it takes: what is written meanwhile may be in its way."""

    def gone() -> bool:
        subprocess.run(["rm", "-rf", str(path)], stderr=subprocess.DEVNULL)
        return not path.exists()

    wait_until(gone)


def saw(made: Attempt, phase: str) -> Callable[[], bool]:
    return lambda: phase in made.control.phases()


def everything_came_in_order(made: Attempt) -> bool:
    return list(made.control.lines) == list(range(1, len(made.control.lines) + 1))


# --- under a living supervisor --------------------------------------------------------------------------------


@contextmanager
def at_step(tmp_path: Path, step: str) -> Iterator[Attempt]:
    """A launched attempt that stays in a step."""
    with ExitStack() as stack:
        if step == "preparing":
            made, gpus = stack.enter_context(gpu_attempt(tmp_path, {1: 500}))
            gpus.hang()
            ready: Callable[[], object] = saw(made, "preparing")
        elif step == "servers starting":
            made = stack.enter_context(server_attempt(tmp_path, server="never_ready"))
            ready = lambda: made.control.of_kind("process_started")  # noqa: E731
        elif step == "settling":
            made = stack.enter_context(server_attempt(tmp_path, trainer="steps:2,crash:1", settle_s=600))
            ready = lambda: made.control.of_kind("process_exited")  # noqa: E731
        else:
            made = stack.enter_context(attempt(tmp_path, trainer="forever,no_save,renamed"))
            ready = lambda: 3 in made.control.train_steps()  # noqa: E731
        made.launch()
        wait_until(ready, made.why)
        if step == "saving":
            made.ask_to_stop(StopMode.SAVE)
            wait_until(saw(made, "stopping"), made.why)
        yield made


@pytest.mark.parametrize("what", ["attempt", "run"])
@pytest.mark.parametrize("step", ["preparing", "servers starting", "training", "saving", "settling"])
def test_a_folder_removed_under_a_live_run_ends_it_and_every_line_comes(tmp_path: Path, step: str, what: str) -> None:
    with at_step(tmp_path, step) as made:
        remove(made.folder.path if what == "attempt" else made.folder.path.parent)
        ended = made.wait_for_end()
        assert (ended["reason"], ended["detail"]) == (
            "folder_lost",
            f"{made.folder.path} or a part of it was removed.",
        )
        assert (ended["receipt"]["survivors"], ended["receipt"]["free"]) == ([], True)
        assert everything_came_in_order(made)
        made.wait_until_gone()
        assert not made.folder.path.exists()


def test_a_folder_removed_before_the_claim_is_answered_ends_the_attempt_too(tmp_path: Path) -> None:
    with attempt(tmp_path) as made:
        made.control.refuse["claim"] = 503
        made.launch()
        wait_until(lambda: any(path.endswith("/claim") for path in made.control.requests))
        remove(made.folder.path)
        del made.control.refuse["claim"]
        assert made.wait_for_end()["reason"] == "folder_lost"
        assert made.control.of_kind("process_started") == []
        made.wait_until_gone()
        assert not made.folder.path.exists()


def test_a_part_of_the_folder_removed_is_a_folder_lost(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(2)
        (made.folder / "outbox.jsonl").unlink()
        assert made.wait_for_end()["reason"] == "folder_lost"
        assert everything_came_in_order(made)
        made.wait_until_gone()
        assert not (made.folder / "outbox.jsonl").exists()


def test_a_folder_removed_after_the_end_takes_nothing_from_it(tmp_path: Path) -> None:
    with attempt(tmp_path, trainer="steps:20,pause:0.05") as made:
        made.control.refuse["sync"] = 503
        made.launch()
        wait_until(lambda: made.folder.has_ended(), made.why)
        remove(made.folder.path)
        del made.control.refuse["sync"]
        assert made.wait_for_end()["reason"] == "completed"
        assert made.control.train_steps() == list(range(1, 21))
        made.wait_until_gone()
        assert not made.folder.path.exists()
    assert made.control.logs["trainer"].startswith(b"fake trainer")


@pytest.mark.parametrize("what", ["folder", "lock"])
def test_whoever_lives_where_files_were_removed_is_not_taken_for_gone(tmp_path: Path, what: str) -> None:
    with attempt(tmp_path, trainer="forever") as made:
        made.launch()
        made.wait_for_step(1)
        first = made.supervisor()
        made.control.refuse["sync"] = 503
        if what == "folder":
            remove(made.folder.path)
        else:
            (made.folder / "supervisor.lock").unlink()
        assert made.launch() == Launch.RUNNING
        assert reaper.reap(RUN, 1, TOKEN, made.settings, to_dict(made.spec.placement)) is False
        assert made.control.reaped[0]["lock_held"] is True
        assert procfs.identity(first.pid) == first
        assert made.folder.path.exists() is (what == "lock")
        made.control.refuse.clear()
        if what == "lock":
            made.ask_to_stop(StopMode.NOW)
        assert made.wait_for_end()["reason"] == ("folder_lost" if what == "folder" else "stopped_by_user")
        assert len(made.control.claims) == 1


@contextmanager
def bound_by_another_user(name: bytes, kind: socket.SocketKind) -> Iterator[None]:
    ready, go = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        os.setuid(65534)
        with socket.socket(socket.AF_UNIX, kind) as one:
            one.bind(name)
            os.write(ready[1], b"x")
            os.close(go[1])
            os.read(go[0], 1)
            os._exit(0)
    try:
        os.read(ready[0], 1)
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for fd in (*ready, *go):
            os.close(fd)


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("kind", [socket.SOCK_DGRAM, socket.SOCK_STREAM])
def test_a_lock_is_not_held_by_the_name_of_another_user(tmp_path: Path, kind: socket.SocketKind) -> None:
    folder = AttemptFolder(tmp_path / "attempt")
    folder.create()
    with bound_by_another_user(_socket_name(folder.path), kind):
        first, second = Lock(folder), Lock(folder)
        assert not first.is_held()
        assert first.acquire()
        assert second.is_held()
        assert not second.acquire()
        first.release()
        assert not second.is_held()


# --- with a dead one ------------------------------------------------------------------------------------------


def gpu(used: int) -> list[GpuReading]:
    return [GpuReading(1, "GPU-1", "a GPU", 80_000, used, None, None, None, "580")]


@contextmanager
def left_without_a_folder(tmp_path: Path, *, first: str) -> Iterator[tuple[Attempt, dict[str, Any]]]:
    """A grandchild in a session of its own is alive; supervisor and folder are gone."""
    with gpu_attempt(tmp_path, {1: 0}, trainer="forever,renamed", gpu_free_deadline_s=0.5) as (made, _):
        made.launch()
        made.wait_for_step(1)
        supervisor = made.supervisor()
        if first == "removed":
            procfs.send(supervisor, signal.SIGSTOP)
            remove(made.folder.path)
            procfs.send(supervisor, signal.SIGKILL)
            wait_until(lambda: not made.lock_is_held(), made.why)
        else:
            made.kill_supervisor()
            remove(made.folder.path)
        assert made.processes()
        yield made, to_dict(made.spec.placement)


@pytest.mark.parametrize("first", ["killed", "removed"])
def test_what_is_left_without_a_folder_is_found_ended_and_proved(tmp_path: Path, first: str) -> None:
    with left_without_a_folder(tmp_path, first=first) as (made, placement):
        assert reaper.reap(RUN, 1, TOKEN, made.settings, placement, read_gpus=lambda: gpu(0)) is True
        report = made.control.reaped[0]
        assert "no folder for this attempt" in report["detail"]
        assert report["receipt"]["processes_ended"] >= 1
        assert [each["gpu"] for each in report["receipt"]["gpus"]] == ["1"]
        assert report["receipt"]["free"] is True
        assert made.processes() == []
        assert not made.folder.path.exists()


def test_a_gpu_that_is_still_in_use_is_not_called_free_for_want_of_a_folder(tmp_path: Path) -> None:
    with left_without_a_folder(tmp_path, first="killed") as (made, placement):
        reaper.reap(RUN, 1, TOKEN, made.settings, placement, read_gpus=lambda: gpu(30_000))
        assert made.control.reaped[0]["receipt"]["free"] is False


def test_without_folder_and_placement_nothing_is_called_free(tmp_path: Path) -> None:
    with left_without_a_folder(tmp_path, first="killed") as (made, _):
        reaper.reap(RUN, 1, TOKEN, made.settings, read_gpus=lambda: gpu(0))
        report = made.control.reaped[0]
        assert (report["receipt"]["free"], report["receipt"]["gpus"]) == (False, [])
        assert "none is proved free" in report["detail"]
        assert made.processes() == []


def test_a_folder_made_anew_by_a_refused_launch_hides_nothing(tmp_path: Path) -> None:
    with left_without_a_folder(tmp_path, first="killed") as (made, placement):
        made.control.go, made.control.why = False, "Another supervisor has this attempt."
        assert made.launch() == Launch.STARTED
        wait_until(lambda: not made.lock_is_held(), made.why)
        assert (made.folder / "spec.json").exists()
        reaper.reap(RUN, 1, TOKEN, made.settings, placement, read_gpus=lambda: gpu(0))
        report = made.control.reaped[0]
        assert "contains no lines" in report["detail"]
        assert (report["receipt"]["processes_ended"] >= 1, report["receipt"]["free"]) == (True, True)


def test_indexes_of_corpora_go_when_nothing_searches_in_them_and_the_corpora_stay(tmp_path: Path) -> None:
    folder = AttemptFolder(tmp_path / "attempt")
    folder.create()
    corpus = corpora.path_in(folder.path, "0" * 64)
    corpora.index_folder(corpus).mkdir(parents=True)
    corpus.touch()
    folder.remove_unfinished()
    assert list(corpus.parent.iterdir()) == [corpus]
