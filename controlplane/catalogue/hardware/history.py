"""A host's GPU utilization over the last ten minutes, stored with its inventory and drawn as chart lines."""

from collections.abc import Iterator, Sequence
from typing import Any

from controlplane.catalogue.hardware.inventory import number

SPAN_S = 600
MIN_INTERVAL_S = 4
"""Minimum seconds between readings: a watched host announces itself more often than the chart can show."""
MAX_ENTRIES = SPAN_S // MIN_INTERVAL_S + 1
GAP_S = 45
"""Seconds without a reading after which the line is interrupted."""

Entry = list[Any]
"""One reading: [unix seconds, [util_percent or None, one per GPU in order]]."""


def add(history: Any, gpus: Sequence[dict[str, Any]], now: float) -> list[Entry]:
    """Return the history, oldest first and limited to its span, with the new reading unless it comes too soon."""
    readings: list[Entry] = [[t, utilization] for t, utilization in _entries(history) if now - SPAN_S <= t <= now]
    if gpus and (not readings or now - readings[-1][0] >= MIN_INTERVAL_S):
        readings.append([round(now, 1), [gpu.get("util_percent") for gpu in gpus]])
    return readings[-MAX_ENTRIES:]


def lines(history: Any, position: int, now: float, *, width: float = 200, height: float = 24) -> list[str]:
    """Draw one GPU's utilization over the last ten minutes, and return the SVG points of each unbroken line."""
    polylines: list[list[str]] = []
    previous_time: float | None = None
    for time, utilization in _entries(history):
        percent = number(utilization[position]) if position < len(utilization) else None
        if percent is None or not now - SPAN_S <= time <= now:
            continue
        x = width * (1 - (now - time) / SPAN_S)
        y = 1 + (height - 2) * (1 - min(max(percent, 0), 100) / 100)
        if previous_time is None or time - previous_time > GAP_S:
            polylines.append([])
        polylines[-1].append(f"{x:.1f},{y:.1f}")
        previous_time = time
    return [" ".join(points) for points in polylines if len(points) > 1]


def _entries(history: Any) -> Iterator[tuple[float, list[Any]]]:
    for entry in history if isinstance(history, list) else ():
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], list):
            time = number(entry[0])
            if time is not None:
                yield time, entry[1]
