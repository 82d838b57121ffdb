"""The web process's sandbox: shared by its requests, bounded in time and in number, opened anew after a close."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from controlplane.catalogue.rewards import turns
from workers.sandbox.outcomes import Backend, Job, Kind, Limits, Outcome, SandboxUnavailable
from workers.sandbox.pool import Sandbox


class Counting(Sandbox):
    """Answers when it is told to, and counts how many slices it has at a time."""

    def __init__(self) -> None:
        self.backend = Backend.BARE
        self.slices: list[int] = []
        self.most = self.now = 0
        self.go = threading.Event()
        self._own = threading.Lock()

    def run(self, jobs: Sequence[Any], limits: Limits = turns._DEFAULT) -> list[Outcome]:
        with self._own:
            self.now += 1
            self.most = max(self.most, self.now)
            self.slices.append(len(jobs))
        assert self.go.wait(30)
        with self._own:
            self.now -= 1
        return [Outcome(Kind.OK, value=job.source) for job in jobs]


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    held = Counting()
    monkeypatch.setattr(turns, "shared_sandbox", lambda preload: held)
    return held


@pytest.fixture
def closed() -> Iterator[None]:
    yield
    turns.close()


def test_jobs_are_evaluated_a_slice_at_a_time_in_order(counting: Counting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns, "SLICE_SIZE", 2)
    counting.go.set()
    outcomes = turns.turn(30).tools.sandbox().run([Job(str(n)) for n in range(5)])
    assert [one.value for one in outcomes] == ["0", "1", "2", "3", "4"]
    assert counting.slices == [2, 2, 1]


def test_no_more_slices_than_there_is_room_for_at_a_time(counting: Counting):
    def ask() -> None:
        turns.turn(30).tools.sandbox().run([Job("x")])

    threads = [threading.Thread(target=ask) for _ in range(turns.MAX_SLICES + 3)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while counting.now < turns.MAX_SLICES and time.monotonic() < deadline:
        time.sleep(0.01)
    counting.go.set()
    for thread in threads:
        thread.join(30)
    assert (counting.most, len(counting.slices)) == (turns.MAX_SLICES, turns.MAX_SLICES + 3)


def test_who_finds_no_room_in_time_is_told(counting: Counting, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(turns, "_room", threading.BoundedSemaphore(1))
    turns._room.acquire()
    turn = turns.turn(0.3)
    with pytest.raises(turns.OutOfTime):
        turn.tools.sandbox().run([Job("x")])
    assert (turn.late, counting.slices) == (True, [])


def test_what_a_request_closes_stays_open_for_the_others(counting: Counting):
    counting.go.set()
    first = turns.turn(30)
    first.tools.sandbox().run([Job("x")])
    first.tools.close()
    assert turns.turn(30).tools.sandbox().run([Job("y")])[0].value == "y"


def test_a_real_sandbox_is_one_for_all_requests_and_anew_after_a_close(closed: None):
    try:
        shared = turns.shared_sandbox(())
    except SandboxUnavailable as error:
        pytest.skip(str(error))
    assert turns.shared_sandbox(()) is shared
    job = Job("def f(n):\n    return n + 1\n", call="f", args=(1,))
    assert [one.value for one in turns.turn(60).tools.sandbox().run([job] * 3)] == [2, 2, 2]
    turns.close()
    assert turns.turn(60).tools.sandbox().run([job])[0].value == 2
    assert turns.shared_sandbox(()) is not shared
