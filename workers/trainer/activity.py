"""A small file with what this rank is doing, which the supervisor reads during a hang.

Standard library only.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from workers.contract.wire.names import UNHURRIED_PARTS, FileName, StepPart

RECORD_BYTES = 600
"""Fixed length of the record, so that one write replaces it completely."""
MAX_NAME = 60
BEAT_S = 1.0
Metrics = Mapping[str, float]


class RankActivity:
    """Record of this rank's activity. A change takes a few microseconds, and errors never reach the training."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._rank = rank
        self._doing: list[str] = []
        self._steps_since = 0.0
        self._figures: Metrics = {}
        self._written_at = 0.0
        path = folder / FileName.ACTIVITY.format(rank=rank)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self._write()

    @contextmanager
    def doing(self, name: str) -> Iterator[None]:
        """Record an activity while the context is open. `name`: a StepPart, or the name of a reward."""
        self._doing.append(name[:MAX_NAME])
        self._write()
        try:
            yield
        finally:
            self._doing.pop()
            if name in UNHURRIED_PARTS:
                self._steps_since = time.monotonic()
            self._write()

    @contextmanager
    def waiting(self, read_metrics: Callable[[], Metrics]) -> Iterator[Callable[[], None]]:
        """Record that this rank is waiting for other programs. Yields a function to call repeatedly, which reports that
        this rank is alive, with the metrics that `read_metrics` returns."""

        def beat() -> None:
            if time.monotonic() - self._written_at >= BEAT_S:
                self._figures = read_metrics()
                self._write()

        with self.doing(StepPart.AGENTS):
            yield beat
            self._figures = dict.fromkeys(self._figures, 0.0)

    def _write(self) -> None:
        self._written_at = now = time.monotonic()
        process = {"rank": self._rank, "pid": os.getpid(), "doing": self._doing[-4:], "since": now}
        record = {**process, "steps_since": self._steps_since, "figures": self._figures}
        content = json.dumps(record, ensure_ascii=False)
        with suppress(OSError):
            os.pwrite(self._fd, content.encode(errors="replace").ljust(RECORD_BYTES), 0)
