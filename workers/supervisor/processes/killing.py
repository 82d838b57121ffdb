"""Termination of a process tree: SIGKILL is sent to every process found, until two scans in a row find none and, if the
kernel can tell, none is left.

The supervisor uses it for its descendants, and the reaper for those of a dead supervisor.
"""

import logging
import signal
import time
from collections.abc import Callable

from workers.supervisor.processes import procfs
from workers.supervisor.processes.procfs import Identity, Process

log = logging.getLogger(__name__)

MAX_ROUNDS_PER_TICK = 25
"""Maximum number of rounds without a pause, so that a process that forks while it is being killed can't escape."""


class Kill:
    """Termination of one process tree, driven by tick() from the main thread."""

    def __init__(
        self,
        find: Callable[[], list[Process]],
        *,
        now: float,
        grace_s: float,
        deadline_s: float,
        is_orphan: Callable[[Process], bool] = lambda process: False,
        nobody_left: Callable[[], bool] = lambda: True,
    ) -> None:
        self._find = find
        self._is_orphan = is_orphan
        self._nobody_left = nobody_left
        self._kill_at = now + grace_s
        self._deadline = now + deadline_s + grace_s
        self._terminated: set[Identity] = set()
        self._empty_scans = 0
        self._alive: list[Process] = []
        self.started_at = now
        self.gone_at: float | None = None
        self.ended: set[Identity] = set()
        self.orphans: set[Identity] = set()

    def tick(self, now: float) -> bool:
        """Continue; return True once the tree is gone, which sets `gone_at`, or the deadline has passed."""
        if self.gone_at is not None:
            return True
        for _ in range(MAX_ROUNDS_PER_TICK):
            self._alive = [process for process in self._find() if process.alive]
            if self._round(now):
                self.gone_at = time.monotonic()  # the rounds of a tick take time
                return True
            if now < self._kill_at and self._alive:
                break
        if now >= self._deadline:
            log.error("processes survived SIGKILL: %s", self.survivors or "not seen by pid")
            return True
        return False

    @property
    def survivors(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._alive)

    def _round(self, now: float) -> bool:
        self._empty_scans = 0 if self._alive else self._empty_scans + 1
        for process in self._alive:
            self.ended.add(process.identity)
            if self._is_orphan(process):
                self.orphans.add(process.identity)
            if process.identity not in self._terminated:
                self._terminated.add(process.identity)
                procfs.send(process.identity, signal.SIGTERM)
            if now >= self._kill_at:
                procfs.send(process.identity, signal.SIGKILL)
        # Reading /proc takes time, and a process that keeps forking and exiting may be missed.
        return self._empty_scans >= 2 and self._nobody_left()
