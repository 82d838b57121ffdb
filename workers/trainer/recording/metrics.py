"""metrics.jsonl: the trainer's lines, flushed one by one, in the form of `workers.contract.reports.lines`."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import as_bytes, event_line, metrics_line
from workers.contract.wire.names import EventKind

LONGEST_NAMES = 1_000
"""Characters of names in one report of left-out metrics."""


class LineFile:
    """A file of JSON lines. Never raises into the training: lost lines are counted and reported once."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        """Open the file. `writes`: False on ranks that don't report."""
        self.path = path
        self.writes = writes
        self.lost = 0
        self._torn = False
        self._left_out: set[str] = set()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if writes else -1

    def write(self, value: Mapping[str, Any]) -> None:
        """Write an object that is not a line of the outbox."""
        self._append(lambda: as_bytes(value))

    def event(self, kind: EventKind, data: Mapping[str, Any], *, step: int | None = None) -> None:
        self._append(lambda: event_line(kind, data, t=time.time(), step=step))

    def log(self, step: int, logs: Mapping[str, Any]) -> None:
        """Write one log call of the trainer. Metrics that a line can't hold are reported once each: a diverged run
        would repeat them at every step."""
        if not self.writes:
            return
        numbers = {name: value if type(value) is float else _number(value) for name, value in logs.items()}
        line, left_out = metrics_line(EventKind.TRAIN, numbers, t=time.time(), step=step)
        self._put(line)
        if names := sorted(set(left_out) - self._left_out):
            self._left_out.update(names)
            self.event(EventKind.METRICS_LEFT_OUT, {"names": ", ".join(names)[:LONGEST_NAMES]}, step=step)

    def _append(self, make: Callable[[], bytes]) -> None:
        if not self.writes:
            return
        try:
            line = make()
        except (ValueError, TypeError) as error:
            self._lose(error)
        else:
            self._put(line)

    def _put(self, line: bytes) -> None:
        # The newline ends a line that a full disk cut off, so that this one stays readable.
        data = b"\n" * self._torn + line + b"\n"
        try:
            written = os.write(self._fd, data)
        except OSError as error:
            self._lose(error)
            return
        self._torn = written != len(data)
        if self._torn:
            self._lose(OSError("cut off, the disk is full"))

    def _lose(self, error: Exception) -> None:
        self.lost += 1
        if self.lost == 1:
            print(f"{self.path.name}: a line is lost: {error}", file=sys.stderr)


def _number(value: Any) -> float | None:
    """Convert an int, or a number of numpy or torch; None for other values (TRL logs None for a missing mean)."""
    if isinstance(value, int):
        return int(value)  # True is 1
    if hasattr(value, "item"):
        try:
            return float(value.item())
        except (ValueError, TypeError, RuntimeError):
            return None
    return None
