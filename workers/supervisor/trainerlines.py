"""What the trainer writes to metrics.jsonl, as lines of the outbox: one for each of its lines that is understood."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from workers.contract import EventKind, FileName
from workers.contract.metrics import is_metric
from workers.supervisor.outbox import line_of
from workers.supervisor.tail import LINE_LIMIT, object_of

VALUES_LIMIT = 2_000
"""Metrics of one log call; more is a mistake of a reward function, and would fill the store with names."""

CHECKPOINT_FILES = 5_000
"""So many are counted."""


@dataclass(frozen=True)
class Translated:
    kind: EventKind
    data: dict[str, Any]
    t: float
    step: int | None


@dataclass
class TrainerProgress:
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
    at = float(t) if isinstance(t, int | float) and 0 <= t <= sys.float_info.max else now
    return Translated(kind, data, at, _step(line))


def note_progress(progress: TrainerProgress, line: dict[str, Any]) -> None:
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

    Each line that is understood made one line of the outbox, in order, so they are counted: a time is no mark, since a
    clock can be set.
    """
    told = sum(_is_translated(line) for line in _lines(outbox))
    offset = 0
    with open(metrics, "rb") as file:
        for raw in file:
            if not told:
                break
            offset += len(raw)
            line = object_of(raw) if len(raw.removesuffix(b"\n")) <= LINE_LIMIT else None
            told -= line is not None and str(line.get("event")) in _KINDS
    return offset


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Its complete lines."""
    try:
        with open(path, "rb") as file:
            for raw in file:
                if raw.endswith(b"\n") and (line := line_of(raw)) is not None:
                    yield line
    except FileNotFoundError:
        return


def _is_translated(line: dict[str, Any]) -> bool:
    kinds = (EventKind.STAGE, EventKind.TRAINING, EventKind.TRAIN, EventKind.CHECKPOINT, EventKind.REWARD_FAILED)
    return line["kind"] in kinds or (line["kind"] == EventKind.NOTE and line["data"].get("text") in _ENDS.values())


def _stage(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    return EventKind.STAGE, {"stage": str(line.get("stage", ""))[:200]}


def _train_begin(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    max_steps = line.get("max_steps")
    return EventKind.TRAINING, {"max_steps": max_steps if isinstance(max_steps, int) else 0, "step": _step(line) or 0}


def _log(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    values = line.get("values")
    items = values.items() if isinstance(values, dict) else ()
    metrics = ((name, value) for name, value in items if is_metric(name, value))
    return EventKind.TRAIN, dict(islice(metrics, VALUES_LIMIT))


def _save(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    path = str(line.get("path", ""))
    return EventKind.CHECKPOINT, {"step": _step(line) or 0, "path": path, "bytes": _checkpoint_bytes(folder, path)}


def _reward_failed(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    words = {name: str(line.get(name, ""))[:500] for name in ("reward", "kind", "message")}
    return EventKind.REWARD_FAILED, {**words, **{name: _whole(line.get(name)) for name in ("row", "count", "of")}}


def _train_end(line: dict[str, Any], folder: Path) -> tuple[EventKind, dict[str, Any]]:
    how = next((word for word in ("failed", "stopped") if line.get(word)), "")
    return EventKind.NOTE, {"text": _ENDS[how], "level": "info"}


_ENDS = {
    "failed": "The trainer stopped early and saved: a reward failed on too many rows.",
    "stopped": "The trainer stopped early, as asked.",
    "": "The trainer reached its last step.",
}


_KINDS: dict[str, Callable[[dict[str, Any], Path], tuple[EventKind, dict[str, Any]]]] = {
    "stage": _stage,
    "train_begin": _train_begin,
    "log": _log,
    "save": _save,
    "reward_failed": _reward_failed,
    "train_end": _train_end,
}


def _step(line: dict[str, Any]) -> int | None:
    return _whole(line.get("step"))


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _checkpoint_bytes(folder: Path, path: str) -> int:
    """A checkpoint holds a few dozen files in one level or two. A trainer may name anything: only what really lies
    among its checkpoints is looked at, and not for long, since the main thread does it."""
    place = Path(os.path.realpath(folder / path.replace("\0", "")))
    if not place.is_relative_to(os.path.realpath(folder / FileName.CHECKPOINTS)):
        return 0
    found = (os.path.join(root, name) for root, _, names in os.walk(place) for name in names)
    total = 0
    for file in islice(found, CHECKPOINT_FILES):
        try:
            total += os.lstat(file).st_size
        except FileNotFoundError:
            continue  # a rotated checkpoint
    return total
