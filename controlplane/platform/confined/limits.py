"""Limits of confined work: a few requests at a time, a few more that wait, and errors with a message for people."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


class Slots:
    """Places for `count` requests at a time, with up to `waiting` others in a queue."""

    def __init__(self, count: int, waiting: int) -> None:
        self._free = threading.BoundedSemaphore(count)
        self._queue = threading.BoundedSemaphore(count + waiting)

    @contextmanager
    def hold(self, what: str, seconds: float, is_wanted: Callable[[], bool] = lambda: True) -> Iterator[None]:
        """Hold a slot for the block, after waiting for up to `seconds` while the work is wanted. Raises Busy if too
        many are waiting, or if no slot becomes free."""
        if not self._queue.acquire(blocking=False):
            raise Busy(what)
        try:
            polls = max(1, round(seconds / POLL_S))
            if not any(self._free.acquire(timeout=POLL_S) for _ in range(polls) if is_wanted()):
                raise Busy(what)
            try:
                yield
            finally:
                self._free.release()
        finally:
            self._queue.release()


class SlotsByKey:
    """Slots for each key, so that work under one key can't occupy what all keys share."""

    def __init__(self, count: int, waiting: int) -> None:
        self._count, self._waiting = count, waiting
        self._slots: dict[str, Slots] = {}
        self._users: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, key: str, what: str, seconds: float) -> Iterator[None]:
        """Hold one of the key's slots for the block. Raises Busy as Slots does."""
        with self._lock:
            slots = self._slots.setdefault(key, Slots(self._count, self._waiting))
            self._users[key] += 1
        try:
            with slots.hold(what, seconds):
                yield
        finally:
            with self._lock:
                self._users[key] -= 1
                if not self._users[key]:
                    del self._users[key], self._slots[key]
