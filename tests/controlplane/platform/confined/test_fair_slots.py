"""Slots are shared fairly: nobody's slow requests keep out those of others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from controlplane.platform.confined.limits import Busy, Slots, asker
from controlplane.platform.confined.pool import ChildPool
from tests.controlplane.people import operator
from tests.runs.api.clients import Program
from tests.waiting import wait_until


@contextmanager
def held(slots: Slots, person: str, seconds: float = 60) -> Iterator[None]:
    token = asker.set(lambda: person)
    try:
        with slots.hold("Asking", seconds):
            yield
    finally:
        asker.reset(token)


class Waiting:
    """Requests that wait in threads, and note how each of them ended."""

    def __init__(self, slots: Slots) -> None:
        self.slots, self.threads, self.log = slots, list[threading.Thread](), list[str]()

    def add(self, person: str) -> None:
        before = len(self.slots._queue)
        self.threads.append(threading.Thread(target=self._ask, args=(person,)))
        self.threads[-1].start()
        wait_until(lambda: len(self.slots._queue) > before or "refused" in self.log)

    def _ask(self, person: str) -> None:
        try:
            with held(self.slots, person):
                self.log.append(person)
        except Busy:
            self.log.append("refused")

    def ended(self) -> list[str]:
        for thread in self.threads:
            thread.join(60)
        return self.log


def test_one_person_may_use_everything_and_no_more() -> None:
    slots = Slots(1, waiting=1)
    waiting = Waiting(slots)
    with held(slots, "ann"):
        waiting.add("ann")
        with pytest.raises(Busy, match="the server is busy"), held(slots, "ann"):
            pass
    assert waiting.ended() == ["ann"]
    with held(slots, "ann", 0):
        pass


def test_somebody_else_gets_a_slot_at_once_while_one_person_holds_all_others() -> None:
    slots = Slots(2, waiting=1)
    with held(slots, "ann"), held(slots, "ann"):
        with held(slots, "bob", 0), pytest.raises(Busy), held(slots, "cid", 0):
            pass
        with held(slots, "cid", 0):
            pass


def test_people_take_turns() -> None:
    slots = Slots(1, waiting=9)
    requests = [slots._enter(person) for person in ("ann", "bob", "ann", "ann", "ann", "bob", "cid", "bob")]
    rounds = list[list[str]]()
    while started := [request for request in requests if request.has_slot]:
        requests = [request for request in requests if not request.has_slot]
        rounds.append([request.person for request in started])
        for request in started:
            slots._leave(request)
    assert rounds == [["ann", "bob"], ["ann", "bob"], ["ann", "cid"], ["ann", "bob"]]
    assert not slots._held


def test_the_last_of_one_persons_many_requests_gives_up_its_place_to_somebody_else() -> None:
    slots = Slots(1, waiting=3)
    waiting = Waiting(slots)
    with ExitStack() as stack:
        for person in ("ann", "bob"):
            stack.enter_context(held(slots, person))
        for person in ("ann", "ann", "ann", "cid"):
            waiting.add(person)
        wait_until(lambda: waiting.log == ["refused"])
        assert [request.person for request in slots._queue] == ["ann", "ann", "cid"]
    assert sorted(waiting.ended()) == ["ann", "ann", "cid", "refused"]


def test_a_request_that_is_no_longer_wanted_gives_up_its_place() -> None:
    slots = Slots(1, waiting=1)
    with held(slots, "ann"), held(slots, "bob"):
        with pytest.raises(Busy), slots.hold("Asking", 60, lambda: False):
            pass
        assert not slots._queue


@pytest.mark.django_db
def test_pages_and_the_api_ask_for_their_own_person(monkeypatch: pytest.MonkeyPatch) -> None:
    askers = list[str]()

    def run(self: ChildPool, message: bytes, what: str, seconds: float, is_wanted: Callable[[], bool]) -> bytes:
        askers.append(asker.get()())
        raise Busy(what)

    monkeypatch.setattr(ChildPool, "run", run)
    operator().post("/runs/new/import", {"import_text": "learning_rate: 1"})
    Program().post("preflight", {"document": "learning_rate: 1"})
    assert len(set(askers)) == 2
    assert all(askers)
    assert asker.get()() == ""
