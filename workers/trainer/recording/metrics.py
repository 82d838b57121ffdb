"""The file metrics.jsonl: the trainer's lines, flushed one by one, in the form of `workers.contract.reports.lines`."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from workers.contract.reports.lines import as_bytes, event_line, metrics_line
from workers.contract.wire.names import EventKind

MAX_NAMES_LENGTH = 1_000


class LineFile:
    """A file of JSON lines. Errors never reach the training: lost lines are counted and reported once."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        """Open the file. `writes`: False on ranks that don't write."""
        self.path = path
        self.writes = writes
        self.lost = 0
        self._torn = False
        self._reported_names: set[str] = set()
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if writes else -1

    def write(self, value: Mapping[str, Any]) -> None:
        """Append `value` as a plain JSON line, without the outbox envelope."""
        self._append(lambda: as_bytes(value))

    def event(self, kind: EventKind, data: Mapping[str, Any], *, step: int | None = None) -> None:
        self._append(lambda: event_line(kind, data, t=time.time(), step=step))

    def log(self, step: int, logs: Mapping[str, Any]) -> None:
        """Append the metrics of one log call of the trainer. Metrics that a line can't contain are reported only once
        each, because a diverged run would repeat them at every step."""
        if not self.writes:
            return
        numbers = {name: value if type(value) is float else _number(value) for name, value in logs.items()}
        line, omitted = metrics_line(EventKind.TRAIN, numbers, t=time.time(), step=step)
        self._put(line)
        if names := sorted(set(omitted) - self._reported_names):
            self._reported_names.update(names)
            self.event(EventKind.METRICS_LEFT_OUT, {"names": ", ".join(names)[:MAX_NAMES_LENGTH]}, step=step)

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
        # The newline ends a line that a full disk truncated, so that this one stays readable.
        data = b"\n" * self._torn + line + b"\n"
        try:
            written_bytes = os.write(self._fd, data)
        except OSError as error:
            self._lose(error)
            return
        self._torn = written_bytes != len(data)
        if self._torn:
            self._lose(OSError("truncated because the disk is full"))

    def _lose(self, error: Exception) -> None:
        self.lost += 1
        if self.lost == 1:
            print(f"{self.path.name}: a line was lost: {error}", file=sys.stderr)


def _number(value: Any) -> float | None:
    """Convert an int, or a number of numpy or torch; return None for other values (TRL logs None for a missing
    mean)."""
    if isinstance(value, int):
        return int(value)  # True is 1
    if hasattr(value, "item"):
        try:
            return float(value.item())
        except (ValueError, TypeError, RuntimeError):
            return None
    return None
