"""Group commits for the lines of many runs: a thread stores all lines that arrived while it stored the last group. Most
of a sync's cost is in building queries, in the transaction and in Redis; a group pays for them once. An idle thread
stores new lines at once. A busy one starts at most one group every PAUSE_S seconds, so that under load the groups grow
instead of the number of transactions."""

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
MAX_LINES = 2000
"""Approximate upper bound of the lines in a transaction, since SQLite lets nobody else write during it."""
LATE_S = 0.3
"""Waiting time in seconds beyond which lines evidently arrive faster than they are stored."""


@dataclass(frozen=True)
class StoredDelivery:
    state: DeliveryState
    watched: bool
    late: bool


@dataclass
class _WaitingDelivery:
    delivery: Delivery
    loop: asyncio.AbstractEventLoop
    outcome: asyncio.Future[StoredDelivery | None]
    since: float = field(default_factory=time.monotonic)


class GroupWriter:
    """A queue of deliveries and its thread, which starts with the first delivery, after the web has forked."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[_WaitingDelivery] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._left_over: _WaitingDelivery | None = None

    def store(self, delivery: Delivery) -> asyncio.Future[StoredDelivery | None]:
        """Queue a delivery of plain, checked lines to be stored with others. The returned future's result is None if
        the delivery must be stored alone."""
        loop = asyncio.get_running_loop()
        waiting = _WaitingDelivery(delivery, loop, loop.create_future())
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
            began_at = time.monotonic()
            group = self._next_group()
            _resolve(group, _store(group))
            del group  # an idle thread keeps no lines
            time.sleep(max(0.0, PAUSE_S - (time.monotonic() - began_at)))

    def _next_group(self) -> list[_WaitingDelivery]:
        """Wait for a delivery, then collect all that have arrived. An attempt's second delivery (as after a time-out)
        is left for the next group."""
        group = [self._left_over or self._queue.get()]
        self._left_over = None
        attempts = {group[0].delivery.attempt_id}
        lines = len(group[0].delivery.lines)
        while lines < MAX_LINES:
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


def _store(group: Sequence[_WaitingDelivery]) -> list[StoredDelivery | None]:
    is_late = time.monotonic() - group[0].since > LATE_S
    close_old_connections()
    try:
        states = ingest.accept_together([waiting.delivery for waiting in group])
        run_ids = hints.watched(state.run_id for state in states if state is not None)
        return [None if state is None else StoredDelivery(state, state.run_id in run_ids, is_late) for state in states]
    except Exception as error:  # loop boundary: one bad delivery must not block the others, which are stored alone
        log.debug("a group of %d is stored one by one: %r", len(group), error)
        return [None] * len(group)
    finally:
        close_old_connections()


def _resolve(group: Sequence[_WaitingDelivery], outcomes: Sequence[StoredDelivery | None]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[_WaitingDelivery, StoredDelivery | None]]] = {}
    for waiting, outcome in zip(group, outcomes, strict=True):
        by_loop.setdefault(waiting.loop, []).append((waiting, outcome))
    for loop, pairs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_set_results, pairs)
        except RuntimeError:  # the event loop has ended, and its waiting requests with it
            log.debug("the event loop of %d deliveries has ended", len(pairs))


def _set_results(pairs: Sequence[tuple[_WaitingDelivery, StoredDelivery | None]]) -> None:
    for waiting, outcome in pairs:
        if not waiting.outcome.done():
            waiting.outcome.set_result(outcome)
