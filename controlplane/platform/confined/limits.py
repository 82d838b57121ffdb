"""Limits of confined work: a few requests at a time, a few more that wait, and errors with a message for people."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

POLL_S = 0.2
MAX_SECONDS = 600.0
"""Maximum time limit of a task."""


class NotFinished(Exception):
    """Base class of errors of work without a result; the message says why and what to do."""


class Busy(NotFinished):
    """Refusal of work because too much of its kind is already running or waiting."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} wasn't started because the server is busy. Try again in a moment.")


class StoppedAtLimit(NotFinished):
    """Error for work that was stopped at a limit, or that failed because of the child process."""


asker: ContextVar[Callable[[], str]] = ContextVar("asker", default=lambda: "")
"""Function that returns the key of the person whose request this is, or "" for nobody, hosts and the worker."""
client_waits: ContextVar[Callable[[], bool]] = ContextVar("client_waits", default=lambda: True)
"""Function that returns whether the client of this request still waits for its answer."""


@dataclass
class _Request:
    person: str
    turn: int
    """Number of its turn: people's first requests come before anybody's second, and so on."""
    is_settled: threading.Event = field(default_factory=threading.Event)
    has_slot: bool = False


class Slots:
    """Slots for `count` requests at a time, with up to `waiting` others in a queue, shared fairly among people.

    One more slot is only for people who hold none, so that nobody's slow requests keep out others. In the queue, people
    take turns; when it is full, the request whose turn is last gives up its place.
    """

    def __init__(self, count: int, waiting: int) -> None:
        self._count, self._waiting = count, waiting
        self._held: Counter[str] = Counter()
        self._queue: list[_Request] = []
        self._turn = 0
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, what: str, seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Hold a slot for the block, after waiting for up to `seconds` while the work is wanted. Raises Busy if too
        many are waiting, or if no slot becomes free."""
        request = self._enter(asker.get()())
        try:
            polls = max(1, round(seconds / POLL_S))
            any(request.is_settled.wait(POLL_S) for _ in range(polls) if is_wanted())
            if not request.has_slot:
                raise Busy(what)
            yield
        finally:
            self._leave(request)

    def _enter(self, person: str) -> _Request:
        with self._lock:
            last = max((request.turn for request in self._queue if request.person == person), default=self._turn)
            request = _Request(person, last + 1)
            self._queue.append(request)
            self._fill()
            if len(self._queue) > self._waiting:
                refused = max(reversed(self._queue), key=lambda waiting: waiting.turn)
                self._queue.remove(refused)
                refused.is_settled.set()
            return request

    def _leave(self, request: _Request) -> None:
        with self._lock:
            if request.has_slot:
                self._held -= Counter([request.person])
            elif request in self._queue:
                self._queue.remove(request)
            self._fill()

    def _fill(self) -> None:
        """Give the free slots to the requests whose turn it is."""
        while allowed := [request for request in self._queue if self._may_start(request.person)]:
            request = min(allowed, key=lambda waiting: waiting.turn)
            self._queue.remove(request)
            self._held[request.person] += 1
            self._turn = request.turn
            request.has_slot = True
            request.is_settled.set()

    def _may_start(self, person: str) -> bool:
        return self._held.total() < self._count + (person not in self._held)


class SlotsByKey:
    """Slots for each key, so that work under one key can't occupy what all keys share."""

    def __init__(self, count: int, waiting: int) -> None:
        self._count, self._waiting = count, waiting
        self._slots: dict[str, Slots] = {}
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, key: str, what: str, seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Hold one of the key's slots for the block. Raises Busy as Slots does."""
        with self._lock:
            slots = self._slots.setdefault(key, Slots(self._count, self._waiting))
            self._users[key] += 1
        try:
            with slots.hold(what, seconds, is_wanted):
                yield
        finally:
            with self._lock:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._slots[key]
