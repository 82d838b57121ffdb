"""One transaction for the lines of many runs: a thread stores whatever has arrived while it stored the last group.

Alone, a sync costs mostly the building of queries, the transaction and questions to Redis; a group pays for them once.
An idle thread stores what comes at once. A busy one begins at most one group in PAUSE_S, so that groups grow with the
load instead of the number of transactions.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.db import close_old_connections

from runs.engine import hints
from runs.intake.host_api import ingest
from runs.intake.host_api.ingest import Delivery, DeliveryState

log = logging.getLogger(__name__)

PAUSE_S = 0.02
MOST_LINES = 2000
"""Lines per transaction, about: meanwhile SQLite lets no one else write."""
LATE_S = 0.3
"""A group that waited for longer shows that more comes in than is stored."""


@dataclass(frozen=True)
class StoredDelivery:
    taken: DeliveryState
    watched: bool
    late: bool


@dataclass
class _Waiting:
    delivery: Delivery
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[StoredDelivery | None]
    since: float = field(default_factory=time.monotonic)


class GroupWriter:
    """The thread begins with the first delivery, after the web has forked its processes."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_Waiting] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._left_over: _Waiting | None = None

    def store(self, delivery: Delivery) -> asyncio.Future[StoredDelivery | None]:
        """Store plain, checked lines with those of others. None: it has to be taken, or refused, alone."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(delivery, loop, loop.create_future())
        self._start()
        self._queue.put(waiting)
        return waiting.outcome

    def _start(self) -> None:
        with self._starting:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="group writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            begin = time.monotonic()
            group = self._next_group()
            _tell(group, _outcomes(group))
            del group  # an idle thread keeps no lines
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - begin)))

    def _next_group(self) -> list[_Waiting]:
        """Wait for one, then take what is there. One attempt's second delivery, sent again after a time-out, comes with
        the next group: each group has a row once."""
        group = [self._left_over or self._queue.get()]
        self._left_over = None
        attempts = {group[0].delivery.attempt_id}
        lines = len(group[0].delivery.lines)
        while lines < MOST_LINES:
            try:
                waiting = self._queue.get_nowait()
            except queue.Empty:
                break
            if waiting.delivery.attempt_id in attempts:
                self._left_over = waiting
                break
            attempts.add(waiting.delivery.attempt_id)
            lines += len(waiting.delivery.lines)
            group.append(waiting)
        return group


writer = GroupWriter()
"""Of this process."""


def _outcomes(group: Sequence[_Waiting]) -> list[StoredDelivery | None]:
    late = time.monotonic() - group[0].since > LATE_S
    close_old_connections()
    try:
        all_taken = ingest.accept_together([waiting.delivery for waiting in group])
        watched = hints.watched_of(taken.run_id for taken in all_taken if taken is not None)
        return [None if taken is None else StoredDelivery(taken, taken.run_id in watched, late) for taken in all_taken]
    except Exception as error:  # loop boundary: whatever is wrong with one of them, the others are stored alone
        log.debug("a group of %d is stored one by one: %r", len(group), error)
        return [None] * len(group)
    finally:
        close_old_connections()


def _tell(group: Sequence[_Waiting], outcomes: Sequence[StoredDelivery | None]) -> None:
    told: dict[asyncio.AbstractEventLoop, list[tuple[_Waiting, StoredDelivery | None]]] = {}
    for waiting, outcome in zip(group, outcomes, strict=True):
        told.setdefault(waiting.loop, []).append((waiting, outcome))
    for loop, pairs in told.items():
        try:
            loop.call_soon_threadsafe(_resolve, pairs)
        except RuntimeError:  # the loop has ended, and with it those who waited
            log.debug("nobody waits any more")


def _resolve(pairs: Sequence[tuple[_Waiting, StoredDelivery | None]]) -> None:
    for waiting, outcome in pairs:
        if not waiting.outcome.done():
            waiting.outcome.set_result(outcome)
