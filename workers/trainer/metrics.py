"""metrics.jsonl: one flushed JSON line for each thing that the trainer has to tell."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False).encode


class LineFile:
    """A file of JSON lines that never raises into the training: what can't be written is counted and said once."""

    def __init__(self, path: Path, *, writes: bool = True) -> None:
        """`writes` is False on the ranks that don't report."""
        self.path = path
        self.lost = 0
        self._torn = False
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600) if writes else None

    def write(self, line: Mapping[str, Any]) -> None:
        if self._fd is None:
            return
        try:
            data = (_encode(line) + "\n").encode("utf-8", "replace")
            if self._torn:
                data = b"\n" + data  # closes what a full disk has cut off, so that this line stays readable
            self._torn = os.write(self._fd, data) != len(data)
        except (OSError, ValueError, TypeError) as error:
            self._torn = self._torn or isinstance(error, OSError)
            self.lost += 1
            if self.lost == 1:
                print(f"{self.path.name}: a line is lost: {error}", file=sys.stderr)

    def event(self, event: str, **fields: Any) -> None:
        self.write({"t": time.time(), "event": event, **fields})

    def log(self, step: int, logs: Mapping[str, Any]) -> None:
        """One log call of the trainer. JSON has no NaN or infinity: those values are left out, and named."""
        values: dict[str, float] = {}
        dropped: list[str] = []
        for name, value in logs.items():
            if type(value) is not float:
                number = _number(value)
                if number is None:
                    continue
                value = number
            if math.isfinite(value):
                values[name] = value
            else:
                dropped.append(name)
        self.write({"t": time.time(), "event": "log", "step": step, "values": values, "dropped": dropped})


def _number(value: Any) -> float | None:
    """An int, or a number of numpy or torch; None for what is no number (TRL logs None for a missing mean)."""
    if isinstance(value, int):
        return value
    if hasattr(value, "item"):
        try:
            return float(value.item())
        except (ValueError, TypeError, RuntimeError):
            return None
    return None
