"""A run's metrics as the rules read them: the newest steps, and a summary of earlier steps (the memory)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runs.insight.health.config import Config
from workers.contract.run.prompts import EXTRA_ROUNDS, MEAN_REWARD, sources

RECENT = 240
"""Number of newest values of each metric that every assessment reads."""
SETTLED_STEPS = 60
"""Number of the oldest of those values that enter the memory. An assessment may be late by this many values."""
MAX_STEPS_BEHIND = 20
"""Number of steps, in addition to three logging intervals, after which a metric counts as no longer logged."""
START = 20
ROLL = 20
STRETCHES = 60
"""Maximum number of points in a series that the memory keeps over the whole run."""
MIN_TRAIL_INTERVAL_S = 30.0
MAX_TEXT_STEPS = 40
FIRST_COMPLETIONS = 100
"""Approximate number of a run's first completions that define what is usual for it."""
GAP = "sampling/sampling_logp_difference/mean"
WEIGHT = "sampling/importance_sampling_ratio/mean"
ZERO_SPREAD = "frac_reward_zero_std"
FIRST_METRICS = (GAP, ZERO_SPREAD, "kl")
"""Metrics whose first values are remembered, before any weights have changed much."""
MARKED_METRICS = ("reward", MEAN_REWARD, "entropy", "completions/mean_length")
"""Metrics whose start and best value are remembered, in addition to the rewards of components and sources."""
SOLVED_LEVEL = 0.9
"""Level of the reward in its range from which little is left to learn."""
GENERATED = "reward"
"""Metric logged only by steps that generate completions; the other steps train on the same completions again."""

Floats = NDArray[np.float64]
Row = tuple[int | None, float, Mapping[str, float]]
"""A metrics line, as (step, t, values)."""


@dataclass(frozen=True)
class MetricHistory:
    step: NDArray[np.int64]
    t: Floats
    value: Floats

    def __len__(self) -> int:
        return len(self.value)

    def pick(self, mask: NDArray[np.bool_]) -> "MetricHistory":
        return MetricHistory(self.step[mask], self.t[mask], self.value[mask])


class Mark(NamedTuple):
    """A summary of a metric, kept in the memory because the metric's first values are no longer read."""

    start: float
    noise: float
    """Standard deviation of neighbouring steps' noise, without the trend."""
    best: float
    """Highest mean over ROLL values, or over fewer at the start, since a run may collapse early."""
    best_step: int
    low: float = inf


class Sums(NamedTuple):
    """Sums for the regression of a metric on the step, over the values that are no longer read."""

    until: int = 0
    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0


@dataclass(frozen=True)
class RunPace:
    """A run's initial pace: medians over its first steps."""

    rate: float
    seconds: float


class Text(NamedTuple):
    """Counts of one step's completions: those that were read, and those with each sign of decay."""

    step: int
    read: int
    repeated: int
    empty: int
    identical: int = 0
    gibberish: int = 0


@dataclass
class History:
    config: Config
    columns: dict[str, MetricHistory]
    step: int = 0
    marks: dict[str, Mark] = field(default_factory=dict)
    sums: dict[str, Sums] = field(default_factory=dict)
    firsts: dict[str, float] = field(default_factory=dict)
    """Metric of FIRST_METRICS -> the median of its first three values."""
    pace: RunPace | None = None
    texts: list[Text] = field(default_factory=list)
    first_texts: Text | None = None
    """Sums over the completions of the first steps."""
    evaluations: list[tuple[int, float]] = field(default_factory=list)
    gaps: list[tuple[int, float]] = field(default_factory=list)
    """Each evaluation's step, and the mean training reward of the generations before it minus the validation reward."""
    solved_shares: list[tuple[int, int, int]] = field(default_factory=list)
    """Stretches of the run, as (last step, completions, solved completions)."""
    trails: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    """Metric of memory in use -> (time, MiB), spread over the attempt's whole training."""
    capacity: Mapping[str, float] = field(default_factory=dict)
    """Total memory in MiB for each metric of `trails`."""
    reported: frozenset[str] = frozenset()
    training_since: float = 0.0
    """End of the attempt's first step, by the host's clock. Before that, GPUs may idle while the model is loading."""
    hang: str = ""
    """The supervisor's sentence about which process is waiting for which, or "" while steps are being completed."""
    quiet_s: float = 0.0
    """Seconds since the last step, by the control plane's clock, or 0 if unknown or not training."""

    def get(self, metric: str, points: int = 1) -> MetricHistory | None:
        """Return the metric's history, or None if it has fewer than `points` values or is no longer logged."""
        column = self.columns.get(metric)
        return column if column is not None and len(column) >= points and self._is_current(column) else None

    def updates(self, metric: str) -> MetricHistory | None:
        """Return the metric's history without the first update of each batch, whose ratio is always 1."""
        column, generated = self.get(metric), self.columns.get(GENERATED)
        if column is None or generated is None or self.config.updates <= 1:
            return column
        return column.pick(~np.isin(column.step, generated.step))

    def first_updates(self, metric: str) -> MetricHistory | None:
        """Return the metric's history at the first update of each batch."""
        column, generated = self.get(metric), self.columns.get(GENERATED)
        if column is None or generated is None:
            return None
        return column.pick(np.isin(column.step, generated.step))

    @property
    def generations(self) -> int:
        """The number of generations that the newest values cover."""
        column = self.columns.get(GENERATED)
        if column is None or not len(column):
            return 0
        return max(len(column), int((column.step[-1] - column.step[0]) / max(self.config.updates, 1)) + 1)

    @property
    def progress(self) -> str:
        """The metric that shows what is learned, or "": the reward of selected groups stays the same by selection."""
        if not self.selects:
            return "reward"
        return MEAN_REWARD if MEAN_REWARD in self.columns else ""

    def has_stopped(self, metric: str) -> bool:
        column = self.columns.get(metric)
        return metric in self.reported if column is None else not self._is_current(column)

    def _is_current(self, column: MetricHistory) -> bool:
        interval = (column.step[-1] - column.step[0]) / max(len(column) - 1, 1)
        return bool(column.step[-1] < 0 or self.step - column.step[-1] <= MAX_STEPS_BEHIND + 3 * interval)

    @property
    def solved(self) -> bool:
        """True if the reward is close to the maximum that its components allow."""
        high, low, column = self.config.highest, self.config.lowest, self.get("reward", ROLL)
        if high is None or low is None or high <= low or column is None:
            return False
        return bool((column.value[-ROLL:].mean() - low) / (high - low) >= SOLVED_LEVEL)

    @property
    def selects(self) -> bool:
        """True if prompts are selected by their rewards, which are then about the same whatever has been learned."""
        return EXTRA_ROUNDS in self.columns


def columns_of(rows: Iterable[Row]) -> dict[str, MetricHistory]:
    """Convert rows, given oldest first, to one column per metric. Rows with the same metrics are converted together,
    because a run logs thousands of rows of a few kinds."""
    steps, times = [], []
    kinds: dict[tuple[str, ...], tuple[list[int], list[list[float]]]] = {}
    for index, (step, t, values) in enumerate(rows):
        steps.append(-1 if step is None else step)
        times.append(t)
        indexes, table = kinds.setdefault(tuple(values), ([], []))
        indexes.append(index)
        table.append(list(values.values()))
    parts: dict[str, list[tuple[NDArray[np.int64], Floats]]] = {}
    for names, (indexes, table) in kinds.items():
        row_indexes, columns = np.array(indexes), np.array(table, dtype=float).T.copy()
        for name, column in zip(names, columns, strict=True):
            parts.setdefault(name, []).append((row_indexes, column))
    step_of, time_of = np.array(steps, dtype=np.int64), np.array(times, dtype=float)
    return {name: _joined(pieces, step_of, time_of) for name, pieces in parts.items()}


def _joined(
    pieces: list[tuple[NDArray[np.int64], Floats]], step_of: NDArray[np.int64], time_of: Floats
) -> MetricHistory:
    """Join a metric's values from several kinds of rows, in the order of the rows."""
    if len(pieces) == 1:
        [(indexes, value)] = pieces
        return MetricHistory(step_of[indexes], time_of[indexes], value)
    indexes = np.concatenate([indexes for indexes, _ in pieces])
    order = np.argsort(indexes)
    indexes, value = indexes[order], np.concatenate([value for _, value in pieces])[order]
    return MetricHistory(step_of[indexes], time_of[indexes], value)


def with_generations(recent: Sequence[Row], earlier: Iterable[Row]) -> list[Row]:
    """Prepend earlier generations to the newest lines, with only those metrics that updates don't log."""
    of_updates = {name for _, _, values in recent if GENERATED not in values for name in values}
    generated = [
        (step, t, {name: value for name, value in values.items() if name not in of_updates})
        for step, t, values in earlier
    ]
    return [*generated, *recent]


def generations(rows: Sequence[Row]) -> int:
    return sum(GENERATED in values for _, _, values in rows)


def noise(value: Floats) -> float:
    """Estimate a series' noise (standard deviation) from the median difference of neighbours, despite trends. If most
    neighbours are equal, as in a sparse series, all differences count."""
    if len(value) < 3:
        return 0.0
    changes = np.abs(np.diff(value))
    # For normal noise with standard deviation 1, the median is 0.954 and the root mean square the square root of 2.
    return float(median(changes) / 0.954 or np.sqrt(np.mean(changes * changes) / 2))


def median(value: Floats) -> float:
    """Return the median of a short series, in a fifth of the time that NumPy's own takes."""
    ordered = np.sort(value)
    if not len(ordered) or np.isnan(ordered[-1]):  # NaN is sorted to the end
        return float("nan")
    return float((ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2)


def rolling_mean(value: Floats, window: int) -> Floats:
    if len(value) < window:
        return np.empty(0)
    # A convolution sums each window separately: in a running sum, one value of 1e20 would distort all later means.
    means: Floats = np.convolve(value, np.full(window, 1 / window), "valid")
    return means


def rolling_median(value: Floats, window: int) -> Floats:
    if len(value) < window:
        return np.empty(0)
    ordered = np.sort(np.lib.stride_tricks.sliding_window_view(value, window), axis=1)
    medians: Floats = (ordered[:, (window - 1) // 2] + ordered[:, window // 2]) / 2
    return np.where(np.isnan(ordered[:, -1]), np.nan, medians)


def paced(column: MetricHistory | None) -> MetricHistory | None:
    """Convert cumulative tokens to seconds per step (`t`) and tokens per second (`value`)."""
    if column is None or len(column) < 2:
        return None
    seconds, steps, tokens = np.diff(column.t), np.diff(column.step), np.diff(column.value)
    is_positive = (seconds > 0) & (steps > 0) & (tokens > 0)
    if not is_positive.any():
        return None
    return MetricHistory(
        column.step[1:][is_positive],
        (seconds / np.maximum(steps, 1))[is_positive],
        tokens[is_positive] / seconds[is_positive],
    )


@np.errstate(over="ignore", invalid="ignore")
def remember(history: History) -> None:
    """Update the memory from the newest values. A metric's start is only recorded if its column begins with the run."""
    for name in (*MARKED_METRICS, *(part.metric for part in history.config.components), *sources(history.columns)):
        column = history.get(name, START)
        if column is None:
            continue
        old = history.marks.get(name)
        mark = _marked(column, old) if old else _first_mark(column) if column.step[0] <= START else None
        if mark is not None and np.isfinite(mark).all():  # differences of values near the largest float overflow
            history.marks[name] = mark
        history.sums[name] = _summed(column, history.sums.get(name) or Sums())
    for name in FIRST_METRICS:
        column = history.get(name, 3)
        if column is not None and name not in history.firsts and column.step[0] <= START:
            history.firsts[name] = median(column.value[:3])
    _note_evaluations(history)
    for name in history.capacity:
        _extend(history, name)
    if history.pace is None:
        pace = paced(history.get("num_tokens", START))
        if pace is not None and len(pace) >= ROLL and pace.step[0] <= START:
            initial_steps = slice(2, START)  # the first steps compile and fill caches
            history.pace = RunPace(float(np.median(pace.value[initial_steps])), float(np.median(pace.t[initial_steps])))


def _note_evaluations(history: History) -> None:
    column = history.columns.get("eval_reward")
    last = history.evaluations[-1][0] if history.evaluations else -1
    if column is not None:
        newer = column.step > last
        added = list(zip(column.step[newer].tolist(), column.value[newer].tolist(), strict=True))
        history.evaluations = [*history.evaluations, *added][-STRETCHES:]
        history.gaps = [*history.gaps, *_gaps(history, added)][-STRETCHES:]


def _gaps(history: History, evaluations: Iterable[tuple[int, float]]) -> Iterable[tuple[int, float]]:
    reward = history.columns.get("reward")
    for step, value in evaluations:
        before = reward.value[reward.step <= step][-ROLL // 2 :] if reward is not None else np.empty(0)
        if len(before):
            yield step, float(before.mean()) - value


def _extend(history: History, name: str) -> None:
    """Add a memory metric's newest value to its trail. A full trail drops every second point."""
    column, trail = history.get(name, 10), history.trails.get(name) or []
    if column is None or not history.training_since or history.step <= START:
        return
    t = float(column.t[-1])
    interval = (trail[-1][0] - trail[0][0]) / STRETCHES if trail else 0.0
    if trail and t - trail[-1][0] < max(interval, MIN_TRAIL_INTERVAL_S):
        return
    newest = column.value[column.t > t - MIN_TRAIL_INTERVAL_S]
    trail = [*trail, (t, median(newest))]
    history.trails[name] = trail[::2] if len(trail) > STRETCHES else trail


def note_solved(history: History, steps: Iterable[tuple[int, int, int]]) -> None:
    """Add (step, completions, solved) of newer steps. Stretches are merged in pairs when there are too many."""
    history.solved_shares += steps
    while len(history.solved_shares) > STRETCHES:
        pairs = zip(history.solved_shares[::2], history.solved_shares[1::2], strict=False)
        joined = [(b[0], a[1] + b[1], a[2] + b[2]) for a, b in pairs]
        history.solved_shares = joined + history.solved_shares[2 * len(joined) :]


def note_texts(history: History, texts: Iterable[Text]) -> None:
    for text in texts:
        history.texts = [*history.texts, text][-MAX_TEXT_STEPS:]
        first_texts = history.first_texts or Text(text.step, 0, 0, 0)
        if text.step <= START and first_texts.read < FIRST_COMPLETIONS:
            history.first_texts = Text(text.step, *(a + b for a, b in zip(first_texts[1:], text[1:], strict=True)))


def _first_mark(column: MetricHistory) -> Mark:
    window = 5
    deviation = noise(column.value)
    means = rolling_mean(column.value[:START], window)
    best_index = int(np.argmax(means))
    # The best of a few windows exceeds their mean by chance; subtract that amount.
    first = Mark(
        start=float((column.value[:START] / START).sum()),
        noise=deviation,
        best=float(means[best_index]) - 2 * deviation / window**0.5,
        best_step=int(column.step[best_index + window - 1]),
    )
    return _marked(column, first)


def _marked(column: MetricHistory, old: Mark) -> Mark:
    means = rolling_mean(column.value, ROLL)
    best_index = int(np.argmax(means))
    best, best_step = float(means[best_index]), int(column.step[best_index + ROLL - 1])
    if old.best >= best:
        best, best_step = old.best, old.best_step
    return Mark(old.start, noise(column.value) or old.noise, best, best_step, min(old.low, float(means.min())))


def _summed(column: MetricHistory, old: Sums) -> Sums:
    """Return the sums extended by the values that the next assessment may no longer read."""
    if len(column) < RECENT:
        return old
    until = int(column.step[SETTLED_STEPS])
    is_new = (column.step > old.until) & (column.step <= until)
    x, y = column.step[is_new].astype(float), column.value[is_new]
    added = (float(len(x)), x.sum(), y.sum(), (x * x).sum(), (x * y).sum(), (y * y).sum())
    sums = Sums(until, *(before + float(new) for before, new in zip(old[1:], added, strict=True)))
    return sums if np.isfinite(sums).all() else old
