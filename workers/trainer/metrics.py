"""metrics.jsonl: one flushed JSON line for each of the trainer's reports."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workers.contract.metrics import LONGEST_NAME, is_metric

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False).encode


class LineFile:
    """A file of JSON lines that never raises into the training: lost lines are counted and reported once."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        """`writes` is False on ranks that don't report."""
        self.path = path
        self.lost = 0
        self._torn = False
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if writes else None

    def write(self, line: Mapping[str, Any]) -> None:
        if self._fd is None:
            return
        try:
            text = _encode(line)
        except (ValueError, TypeError) as error:
            self._lose(error)
        else:
            self._append(text)

    def event(self, event: str, **fields: Any) -> None:
        self.write({"t": time.time(), "event": event, **fields})

    def log(self, step: int, logs: Mapping[str, Any]) -> None:
        """Write one log call of the trainer. Values that JSON lacks (NaN, infinity) and names that are too long are
        dropped and listed.

        Formatted by hand: a third faster than the encoder, in the one place that every step passes.
        """
        if self._fd is None:
            return
        pairs: list[str] = []
        dropped: list[str] = []
        for name, value in logs.items():
            number = value if type(value) is float else _number(value)
            if number is None:
                continue
            if is_metric(name, number):
                pairs.append(f"{_quoted(name)}:{number!r}")
            else:
                dropped.append(name[:LONGEST_NAME])
        values = ",".join(pairs)
        dropped_json = _encode(dropped) if dropped else "[]"
        self._append(
            f'{{"t":{time.time()!r},"event":"log","step":{step},"values":{{{values}}},"dropped":{dropped_json}}}'
        )

    def _append(self, text: str) -> None:
        assert self._fd is not None  # noqa: S101  # checked by the callers
        try:
            data = (text + "\n").encode("utf-8", "replace")
            if self._torn:
                data = b"\n" + data  # ends a line cut off by a full disk, so that this one stays readable
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


@functools.cache
def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _number(value: Any) -> float | None:
    """An int, or a number of numpy or torch; None for anything else (TRL logs None for a missing mean)."""
    if isinstance(value, int):
        return int(value)  # True is 1
    if hasattr(value, "item"):
        try:
            return float(value.item())
        except (ValueError, TypeError, RuntimeError):
            return None
    return None
