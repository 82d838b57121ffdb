"""The last ten minutes of a host's GPU utilization: stored with its inventory, and drawn as lines of a chart."""

from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.catalogue.hardware.inventory import number

SPAN_S = 600
MIN_APART_S = 4
"""Minimum distance of readings; a watched host announces itself more often than a line can show."""
MAX_ENTRIES = SPAN_S // MIN_APART_S + 1
GAP_S = 45
"""Longer silence is a gap in the line."""

Entry = list[Any]
"""[unix seconds, [util_percent or None, one per GPU in order]]"""


def add(history: Any, gpus: Sequence[dict[str, Any]], now: float) -> list[Entry]:
    """Return the history, oldest first and within its span, with one more reading."""
    recent: list[Entry] = [[t, used] for t, used in _entries(history) if now - SPAN_S <= t <= now]
    if gpus and (not recent or now - recent[-1][0] >= MIN_APART_S):
        recent.append([round(now, 1), [gpu.get("util_percent") for gpu in gpus]])
    return recent[-MAX_ENTRIES:]


def lines(history: Any, position: int, now: float, *, width: float = 200, height: float = 24) -> list[str]:
    """Draw one GPU's utilization, 0 to 100 % over the last ten minutes: SVG points of a line per stretch without
    gaps."""
    drawn: list[list[str]] = []
    before: float | None = None
    for t, used in _entries(history):
        value = number(used[position]) if position < len(used) else None
        if value is None or not now - SPAN_S <= t <= now:
            continue
        x = width * (1 - (now - t) / SPAN_S)
        y = 1 + (height - 2) * (1 - min(max(value, 0), 100) / 100)
        if before is None or t - before > GAP_S:
            drawn.append([])
        drawn[-1].append(f"{x:.1f},{y:.1f}")
        before = t
    return [" ".join(points) for points in drawn if len(points) > 1]


def _entries(history: Any) -> Iterator[tuple[float, list[Any]]]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list):
            t = number(entry[0])
            if t is not None:
                yield t, entry[1]
