"""A host's GPU utilization over the last ten minutes, stored with its inventory and drawn as chart lines."""

from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.catalogue.hardware.inventory import number

SPAN_S = 600
MIN_INTERVAL_S = 4
"""Minimum seconds between readings: a watched host announces itself more often than the chart can show."""
MAX_ENTRIES = SPAN_S // MIN_INTERVAL_S + 1
GAP_S = 45
"""Seconds without readings after which the line has a gap."""

Entry = list[Any]
"""One reading: [unix seconds, [util_percent or None, one per GPU in order]]."""


def add(history: Any, gpus: Sequence[dict[str, Any]], now: float) -> list[Entry]:
    """Return the history, oldest first and limited to its span, with the new reading added."""
    recent: list[Entry] = [[t, utilization] for t, utilization in _entries(history) if now - SPAN_S <= t <= now]
    if gpus and (not recent or now - recent[-1][0] >= MIN_INTERVAL_S):
        recent.append([round(now, 1), [gpu.get("util_percent") for gpu in gpus]])
    return recent[-MAX_ENTRIES:]


def lines(history: Any, position: int, now: float, *, width: float = 200, height: float = 24) -> list[str]:
    """Draw one GPU's utilization over the last ten minutes, and return the SVG points of each unbroken line."""
    polylines: list[list[str]] = []
    previous_t: float | None = None
    for t, utilization in _entries(history):
        value = number(utilization[position]) if position < len(utilization) else None
        if value is None or not now - SPAN_S <= t <= now:
            continue
        x = width * (1 - (now - t) / SPAN_S)
        y = 1 + (height - 2) * (1 - min(max(value, 0), 100) / 100)
        if previous_t is None or t - previous_t > GAP_S:
            polylines.append([])
        polylines[-1].append(f"{x:.1f},{y:.1f}")
        previous_t = t
    return [" ".join(points) for points in polylines if len(points) > 1]


def _entries(history: Any) -> Iterator[tuple[float, list[Any]]]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list):
            t = number(entry[0])
            if t is not None:
                yield t, entry[1]
