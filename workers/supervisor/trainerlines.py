"""What the trainer writes to metrics.jsonl, as lines of the outbox: one for each of its lines that is understood."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.contract import EventKind, FileName

VALUES_LIMIT = 2_000
"""Metrics of one log call; more is a mistake of a reward function, and would fill the store with names."""


@dataclass(frozen=True)
class Translated:
    kind: EventKind
    data: dict[str, Any]
    t: float
    step: int | None


@dataclass
class Progress:
    """What the trainer's own lines say of how far it came."""

    step: int | None = None
    trained_steps: int = 0
    ended: bool = False
    """train_end was written."""
    stopped: bool = False
    """It ended before its last step because STOP was there."""


def translate(line: dict[str, Any], *, folder: Path, now: float) -> Translated | None:
    make = _KINDS.get(str(line.get("event")))
    if make is None:
        return None
    t = line.get("t")
    kind, data = make(line, folder)
    return Translated(kind, data, float(t) if isinstance(t, int | float) else now, _step(line))


def note_progress(progress: Progress, line: dict[str, Any]) -> None:
    step = _step(line)
    if step is not None:
        progress.step = step
    if line.get("event") == "log":
        progress.trained_steps += 1
    if line.get("event") == "train_end":
        progress.ended = True
        progress.stopped = bool(line.get("stopped"))


def resume_position(outbox: Path, metrics: Path) -> int:
    """How far a supervisor that died had read metrics.jsonl, in bytes.

    A translated line keeps the trainer's own time, so the last one in the outbox is found again by it.
    """
    last = _last_translated(outbox)
    if last is None:
        return 0
    offset = 0
    with open(metrics, "rb") as file:
        for raw in file:
            offset += len(raw)
            try:
                line = json.loads(raw)
            except (ValueError, RecursionError):
                continue
            if isinstance(line, dict) and (line.get("t"), _step(line)) == last and line.get("event") in _KINDS:
                return offset
    return 0


def _last_translated(outbox: Path) -> tuple[Any, int | None] | None:
    kinds = {EventKind.STAGE, EventKind.TRAINING, EventKind.TRAIN, EventKind.CHECKPOINT}
    last = None
    try:
        with open(outbox, "rb") as file:
            for raw in file:
                if raw.endswith(b"\n"):
                    line = json.loads(raw)
                    if line["kind"] in kinds:
                        last = (line["t"], line["step"])
    except FileNotFoundError:
        return None
    return last


def _stage(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    return EventKind.STAGE, {"stage": str(line.get("stage", ""))[:200]}


def _train_begin(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    max_steps = line.get("max_steps")
    return EventKind.TRAINING, {"max_steps": max_steps if isinstance(max_steps, int) else 0, "step": _step(line) or 0}


def _log(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    values = line.get("values")
    items = values.items() if isinstance(values, dict) else ()
    finite = {name[:200]: value for name, value in items if _is_finite(value)}
    return EventKind.TRAIN, dict(list(finite.items())[:VALUES_LIMIT])


def _save(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    path = str(line.get("path", ""))
    return EventKind.CHECKPOINT, {"step": _step(line) or 0, "path": path, "bytes": _folder_bytes(folder / path)}


def _train_end(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    how = "stopped early, as asked" if line.get("stopped") else "reached its last step"
    return EventKind.NOTE, {"text": f"The trainer {how}.", "level": "info"}


_KINDS: dict[str, Callable[[dict[str, Any], Path], tuple[EventKind, dict[str, Any]]]] = {
    "stage": _stage,
    "train_begin": _train_begin,
    "log": _log,
    "save": _save,
    "train_end": _train_end,
}


def _step(line: dict[str, Any]) -> int | None:
    step = line.get("step")
    return step if isinstance(step, int) and not isinstance(step, bool) else None


def _is_finite(value: Any) -> bool:
    """Compared, not asked of `math.isfinite`: that raises for a whole number of 400 digits."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _folder_bytes(path: Path) -> int:
    """A checkpoint holds a few dozen files in one level or two."""
    if FileName.CHECKPOINTS not in path.parts:
        return 0
    total = 0
    for root, _, files in os.walk(path):
        for name in files:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue  # a rotated checkpoint
    return total
