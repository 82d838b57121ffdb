"""Signals, the values that rules judge over the newest steps, and common ways to compute them from a metric."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from runs.insight.health.history import Floats, History, MetricHistory, rolling_mean, rolling_median


@dataclass(frozen=True)
class Signal:
    at: NDArray[np.int64] | Floats
    value: Floats
    fields: Mapping[str, str] = field(default_factory=dict)
    """Additional placeholders of the rule's sentences, for the newest value."""
    sure: NDArray[np.bool_] | None = None
    """Steps with overwhelming evidence, at which a finding opens without waiting for the rule's `hold`."""

    def with_fields(self, **fields: str) -> "Signal":
        return replace(self, fields={**self.fields, **fields})


SignalReader = Callable[[History], Signal | None]
"""A function that computes a rule's signal, or returns None if there is nothing to judge yet."""
Roll = Callable[[Floats, int], Floats]


def mean(name: str, *, window: int) -> SignalReader:
    return lambda history: rolled(history.get(name), rolling_mean, window)


def median(name: str, *, window: int = 10) -> SignalReader:
    return lambda history: rolled(history.get(name), rolling_median, window)


def highest(signals: Iterable[Signal | None]) -> Signal | None:
    """Return the signal with the highest newest value, or None if there is no signal."""
    return max(filter(None, signals), key=lambda signal: float(signal.value[-1]), default=None)


def rolled(column: MetricHistory | None, roll: Roll, window: int) -> Signal | None:
    if column is None or len(column) < window:
        return None
    return Signal(column.step[window - 1 :], roll(column.value, window))


def rolled_early(column: MetricHistory | None, window: int, least: int) -> Signal | None:
    """Average over `window` values. At the beginning, average over all values so far, but at least `least`."""
    if column is None or len(column) < least:
        return None
    growing = [float((column.value[:n] / n).sum()) for n in range(least, min(window, len(column) + 1))]
    return Signal(column.step[least - 1 :], np.concatenate((growing, rolling_mean(column.value, window))))


def run_lengths(holds: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return, for each value, the number of consecutive true values that end there."""
    index = np.arange(1, len(holds) + 1)
    return index - np.maximum.accumulate(np.where(holds, 0, index))
