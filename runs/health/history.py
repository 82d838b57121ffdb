"""The part of a run's numbers that the rules read: the newest steps, and a memory of the earlier ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runs.health.config import Config

RECENT = 240
"""Steps read again at each assessment."""
START = 20
"""The number of values that describe a run's start."""
ROLL = 20
MARKED = ("reward", "entropy", "completions/mean_length")
"""Metrics whose start and best are remembered, in addition to the reward components."""

Floats = NDArray[np.float64]
Row = tuple[int | None, float, Mapping[str, float]]
"""(step, t, values) of a line."""


@dataclass(frozen=True)
class MetricHistory:
    """One metric, oldest first."""

    step: NDArray[np.int64]
    t: Floats
    value: Floats

    def __len__(self) -> int:
        return len(self.value)


class Mark(NamedTuple):
    """The memory of a metric whose first values are no longer read."""

    start: float
    """Mean of the first values."""
    noise: float
    """Standard deviation between neighbouring steps, without the trend."""
    best: float
    """Highest mean over ROLL steps."""
    best_step: int


@dataclass(frozen=True)
class RunPace:
    """Medians of the first steps."""

    rate: float
    """Tokens per second."""
    seconds: float
    """Seconds per step."""


@dataclass(frozen=True)
class Text:
    """The completions of one step: how many were read, how many repeat themselves, how many are empty."""

    step: int
    read: int
    repeated: int
    empty: int


@dataclass
class History:
    config: Config
    columns: dict[str, MetricHistory]
    step: int = 0
    """The newest step."""
    marks: dict[str, Mark] = field(default_factory=dict)
    pace: RunPace | None = None
    texts: list[Text] = field(default_factory=list)
    known: frozenset[str] = frozenset()
    """Every metric that the run has ever reported."""
    training_since: float = 0.0
    """By the host's clock; before it, GPUs were idle because the model was loading."""
    quiet_s: float = 0.0
    """Seconds since the last step, by the control plane's clock; 0: unknown, or not training."""

    def get(self, metric: str, points: int = 1) -> MetricHistory | None:
        """The metric's history. None if it has fewer than `points` values: a missing metric is not a finding."""
        column = self.columns.get(metric)
        return column if column is not None and len(column) >= points else None

    @property
    def solved(self) -> bool:
        """Whether the reward is close to the maximum of its components."""
        high, low, column = self.config.highest, self.config.lowest, self.get("reward", ROLL)
        if high is None or low is None or high <= low or column is None:
            return False
        return bool((column.value[-ROLL:].mean() - low) / (high - low) >= 0.9)

    def step_at(self, t: float) -> int:
        column = self.get("loss") or self.get("reward")
        if column is None:
            return self.step
        return int(column.step[max(0, int(np.searchsorted(column.t, t, side="right")) - 1)])


def columns_of(rows: Iterable[Row]) -> dict[str, MetricHistory]:
    """Turn rows, oldest first, into a column per metric."""
    lists: dict[str, tuple[list[int], list[float], list[float]]] = {}
    for step, t, values in rows:
        at = -1 if step is None else step
        for name, value in values.items():
            if (column := lists.get(name)) is None:
                column = lists[name] = [], [], []
            column[0].append(at)
            column[1].append(t)
            column[2].append(value)
    return {
        name: MetricHistory(np.array(step, dtype=np.int64), np.array(t, dtype=float), np.array(value, dtype=float))
        for name, (step, t, value) in lists.items()
    }


def noise(value: Floats) -> float:
    """The noise of a series, from the median difference between neighbours; trends and drops hardly affect it."""
    if len(value) < 3:
        return 0.0
    return float(np.median(np.abs(np.diff(value))) / 0.954)  # for normal noise of deviation 1


def rolling_mean(value: Floats, window: int) -> Floats:
    if len(value) < window:
        return np.empty(0)
    # Each window by itself: in a running sum one value of 1e20 would stay in all later means.
    means: Floats = (np.lib.stride_tricks.sliding_window_view(value, window) / window).sum(axis=1)
    return means


def rolling_median(value: Floats, window: int) -> Floats:
    if len(value) < window:
        return np.empty(0)
    medians: Floats = np.median(np.lib.stride_tricks.sliding_window_view(value, window), axis=1)
    return medians


def paced(column: MetricHistory | None) -> MetricHistory | None:
    """From cumulative tokens: seconds per step as `t`, tokens per second as `value`. A pause counts as a slow step."""
    if column is None or len(column) < 2:
        return None
    seconds, steps, tokens = np.diff(column.t), np.diff(column.step), np.diff(column.value)
    sound = (seconds > 0) & (steps > 0) & (tokens > 0)
    if not sound.any():
        return None
    return MetricHistory(
        column.step[1:][sound], (seconds / np.maximum(steps, 1))[sound], tokens[sound] / seconds[sound]
    )


@np.errstate(over="ignore", invalid="ignore")
def remember(history: History, *, whole: bool) -> None:
    """Update the memory. `whole`: the columns begin with the run, so its start is known."""
    for name in (*MARKED, *(part.metric for part in history.config.components)):
        column = history.get(name, START)
        if column is None:
            continue
        means = rolling_mean(column.value, ROLL)
        top = int(np.argmax(means))
        best, best_step = float(means[top]), int(column.step[top + ROLL - 1])
        old = history.marks.get(name)
        if old is None and not whole:
            continue
        start = old.start if old else float((column.value[:START] / START).sum())
        if old and old.best >= best:
            best, best_step = old.best, old.best_step
        mark = Mark(start, noise(column.value), best, best_step)
        if np.isfinite(mark).all():  # differences of values near the largest float overflow
            history.marks[name] = mark
    if history.pace is None and whole:
        pace = paced(history.get("num_tokens", START))
        if pace is not None and len(pace) >= ROLL:
            first = slice(2, START)  # the first steps compile and fill caches
            history.pace = RunPace(float(np.median(pace.value[first])), float(np.median(pace.t[first])))


def forget_after(history: History, step: int) -> None:
    """Forget the best values after `step`, which a resume made void."""
    history.marks = {
        name: mark if mark.best_step <= step else Mark(mark.start, mark.noise, mark.start, 0)
        for name, mark in history.marks.items()
    }
    history.texts = [text for text in history.texts if text.step <= step]


def to_memory(history: History) -> dict[str, Any]:
    """The memory as JSON, stored beside the assessment."""
    return {
        "marks": {name: [m.start, m.noise, m.best, m.best_step] for name, m in history.marks.items()},
        "pace": [history.pace.rate, history.pace.seconds] if history.pace else None,
        "texts": [[text.step, text.read, text.repeated, text.empty] for text in history.texts],
    }


def from_memory(history: History, memory: Mapping[str, Any]) -> None:
    history.marks = {name: Mark(*values) for name, values in (memory.get("marks") or {}).items()}
    history.pace = RunPace(*memory["pace"]) if memory.get("pace") else None
    history.texts = [Text(*values) for values in memory.get("texts") or []]
