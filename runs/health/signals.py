"""The figure of each rule over the newest steps: pure functions of a history. None: nothing to judge yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controlplane.templatetags.figures import change, duration, significant
from runs.health.config import Component
from runs.health.history import (
    ROLL,
    START,
    Floats,
    History,
    MetricHistory,
    Text,
    noise,
    paced,
    rolling_mean,
    rolling_median,
)

LAGS = (60, 180)
"""Spans of steps in which one component may rise while another falls."""
BEYOND = 1.01
"""Share of the highest possible reward."""
CHANCE = 4.0
"""A change of this many standard errors is significant."""
WINDOW_S = 120.0
SHORTEST_S = 60.0
"""A save or a compilation may take this long."""


@dataclass(frozen=True)
class Signal:
    at: NDArray[np.int64] | Floats
    """The position of each value: its step, or its second for rules that use the clock."""
    value: Floats
    words: Mapping[str, str] = field(default_factory=dict)
    """Further values for the rule's sentence, from the newest value."""


Of = Callable[[History], Signal | None]


def _mean(*names: str, window: int) -> Of:
    return lambda history: _rolled(_first(history, names), rolling_mean, window)


def _median(name: str, *, window: int = 10) -> Of:
    return lambda history: _rolled(history.get(name), rolling_median, window)


def _first(history: History, names: tuple[str, ...]) -> MetricHistory | None:
    return next((column for name in names if (column := history.get(name)) is not None), None)


def _rolled(column: MetricHistory | None, roll: Callable[[Floats, int], Floats], window: int) -> Signal | None:
    if column is None or len(column) < window:
        return None
    return Signal(column.step[window - 1 :], roll(column.value, window))


def _ratio(history: History) -> Signal | None:
    ratio = _rolled(history.get("mean_ratio"), rolling_mean, ROLL)
    return ratio and Signal(ratio.at, np.abs(ratio.value - 1.0))


def _entropy_rise(history: History) -> Signal | None:
    entropy, mark = _rolled(history.get("entropy"), rolling_median, 10), history.marks.get("entropy")
    if entropy is None or mark is None:
        return None
    # Near 0 a multiple means little.
    return Signal(entropy.at, np.where(entropy.value >= 0.5, entropy.value / max(mark.start, 1e-9), 0.0))


def _reward_stuck(history: History) -> Signal | None:
    """Steps without a significant change of the reward, at each step."""
    window, column, mark = 50, history.get("reward", 60), history.marks.get("reward")
    if column is None or mark is None or history.solved:
        return None
    means = rolling_mean(column.value, window)
    error = max(mark.noise, 1e-12) * np.sqrt(1 / START + 1 / window)
    if mark.best - mark.start > 3 * CHANCE * error:
        return None  # it has risen; other rules judge whether it stays there
    gain = means - mark.start
    steps = column.step[window - 1 :]
    still = np.where(np.abs(gain) < 2 * error, steps, 0).astype(float)
    return Signal(steps, still, {"gain": change(float(gain[-1])) or "0"})


def _reward_falling(history: History) -> Signal | None:
    return _fall(history, "reward", history.config.low_to_high)


def _component_falling(history: History) -> Signal | None:
    """The largest loss among the components that should be high."""
    worst: tuple[Component, Signal] | None = None
    for part in history.config.components:
        span = part.high - part.low if part.high is not None and part.low is not None else None
        loss = _fall(history, part.metric, span) if part.weight > 0 else None
        if loss is not None and (worst is None or loss.value[-1] > worst[1].value[-1]):
            worst = part, loss
    return worst and Signal(worst[1].at, worst[1].value, {**worst[1].words, "component": f"“{worst[0].name}”"})


def _fall(history: History, metric: str, span: float | None) -> Signal | None:
    """The share of the best gain that has been lost, at each step. `span`: the range of possible values, if known."""
    column, mark = history.get(metric, 2 * ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return None
    means = rolling_mean(column.value, ROLL)
    best = np.maximum.accumulate(means)
    if mark.best_step < int(column.step[0]):
        best = np.maximum(best, mark.best)
    span = abs(mark.best) if span is None else span
    scale = max(mark.best - mark.start, 4 * mark.noise, 0.15 * span, 1e-12)
    words = {
        "now": significant(float(means[-1])),
        "best": significant(float(best[-1])),
        "best_step": f"{mark.best_step:,}",
    }
    return Signal(column.step[ROLL - 1 :], (best - means) / scale, words)


def _reward_saturated(history: History) -> Signal | None:
    high, low = history.config.highest, history.config.lowest
    reward = _rolled(history.get("reward"), rolling_mean, ROLL)
    if reward is None or high is None or low is None or high <= low:
        return None
    share = (reward.value - low) / (high - low)
    # Beyond 100%: a component exceeds its declared range, so its maximum is unknown.
    return None if bool((share > BEYOND).any()) else Signal(reward.at, share)


def _component_low(history: History) -> Signal | None:
    """The lowest of the components that count from 0 up; a penalty is at its best at 0."""
    lowest: tuple[Component, Signal] | None = None
    for part in history.config.components:
        score = _rolled(history.get(part.metric), rolling_mean, ROLL)
        if score is None or part.weight <= 0 or part.low != 0:
            continue
        if lowest is None or score.value[-1] < lowest[1].value[-1]:
            lowest = part, score
    return lowest and Signal(lowest[1].at, lowest[1].value, {"component": f"“{lowest[0].name}”"})


def _components(history: History) -> Signal | None:
    columns = [
        (part, column) for part in history.config.components if (column := history.get(part.metric)) and part.weight
    ]
    length = min((len(column) for _, column in columns), default=0)
    moves = [move for lag in LAGS if length >= lag + 2 * ROLL and (move := _trade(columns, length, lag))]
    return max(moves, key=lambda signal: signal.value[-1]) if moves and len(columns) > 1 else None


def _trade(columns: list[tuple[Component, MetricHistory]], length: int, lag: int) -> Signal:
    """How much of its range a component has lost within `lag` steps while another one rose, at each step."""
    gained, lost = [], []
    for part, column in columns:
        value = np.copysign(1.0, part.weight) * column.value[-length:]
        means = rolling_mean(value, ROLL)
        moved = means[lag:] - means[:-lag]
        span = part.high - part.low if part.high is not None and part.low is not None else float(np.ptp(value))
        enough = max(CHANCE * noise(value) * np.sqrt(2 / ROLL), 0.05 * span, 1e-12)
        gained.append(moved > enough)
        lost.append(np.where(moved < -enough, -moved / max(span, 1e-12), 0.0))
    loss = np.max(lost, axis=0) * np.any(gained, axis=0)
    falling = int(np.argmax([each[-1] for each in lost]))
    rising = next((i for i, each in enumerate(gained) if each[-1]), 0)
    words = {"rising": f"“{columns[rising][0].name}”", "falling": f"“{columns[falling][0].name}”"}
    return Signal(columns[0][1].step[-len(loss) :], loss, words)


def _length_cap(history: History) -> Signal | None:
    name = "completions/mean_length"
    lengths, mark = _rolled(history.get(name), rolling_mean, 10), history.marks.get(name)
    if lengths is None or mark is None:
        return None
    grown = lengths.value >= 1.25 * mark.start
    words = {"start": significant(mark.start), "now": significant(float(lengths.value[-1]))}
    return Signal(lengths.at, np.where(grown, lengths.value / history.config.cap, 0.0), words)


def _texts(which: Callable[[Text], int]) -> Of:
    def of(history: History) -> Signal | None:
        newest = [text for text in history.texts if text.read][-40:]
        if sum(text.read for text in newest[-3:]) < 8:
            return None
        read = np.array([text.read for text in newest], dtype=float)
        count = np.array([which(text) for text in newest], dtype=float)
        window = min(3, len(newest))
        share = rolling_mean(count, window) / rolling_mean(read, window)
        return Signal(np.array([text.step for text in newest[window - 1 :]]), share)

    return of


def _grad_spikes(history: History) -> Signal | None:
    before, column = 50, history.get("grad_norm", 60)
    if column is None:
        return None
    usual = rolling_median(column.value, before)[:-1]
    later = column.value[before:]
    spike = (later > 10 * usual) & (later > history.config.max_grad_norm)
    counts = np.convolve(spike, np.ones(50))[: len(spike)]
    newest = later[-50:][spike[-50:]]
    largest = float(newest.max()) if len(newest) else 0.0
    return Signal(column.step[before:], counts, {"largest": significant(largest)})


def _not_finite(history: History) -> Signal | None:
    """Steps that have a learning rate, logged with the other figures, but lack a figure that the run has logged
    before."""
    learning_rate = history.get("learning_rate", ROLL)
    if learning_rate is None:
        return None
    missing = np.zeros(len(learning_rate), dtype=bool)
    for name in ("loss", "grad_norm"):
        column = history.get(name)
        if column is not None:
            missing |= ~np.isin(learning_rate.step, column.step)
        elif name in history.known:
            missing[:] = True
    return Signal(learning_rate.step[ROLL - 1 :], np.round(rolling_mean(missing.astype(float), ROLL) * ROLL))


def _loss(history: History) -> Signal | None:
    loss = _rolled(history.get("loss"), rolling_median, 10)
    return loss and Signal(loss.at, np.abs(loss.value))


def _truncation(history: History) -> Signal | None:
    share = _rolled(history.get("completions/clipped_ratio"), rolling_mean, 10)
    masked = ", and count for nothing (mask_truncated_completions)" if history.config.mask_truncated else ""
    return share and Signal(share.at, share.value, {"cap": f"{history.config.cap:,}", "masked": masked})


def _throughput(history: History) -> Signal | None:
    """Throughput relative to the start or to the preceding window, whichever was faster."""
    pace, newest = paced(history.get("num_tokens")), 40
    if pace is None or len(pace) < 2 * newest:
        return None
    rate, seconds = float(np.median(pace.value[:-newest])), float(np.median(pace.t[:-newest]))
    if history.pace is not None:
        rate, seconds = max(rate, history.pace.rate), min(seconds, history.pace.seconds)
    slower = np.minimum(rate / rolling_median(pace.value, ROLL), rolling_median(pace.t, ROLL) / seconds)
    now = float(np.median(pace.t[-ROLL:]))
    return Signal(pace.step[ROLL - 1 :], slower, {"now": significant(now), "usual": significant(seconds)})


def _stalled(history: History) -> Signal | None:
    column = history.get("loss", 5)
    if column is None or not history.quiet_s:
        return None
    longest = max(float(np.diff(column.t).max()), SHORTEST_S)
    return Signal(column.step[-1:], np.array([history.quiet_s / longest]), {"quiet": duration(history.quiet_s)})


def _gpu_idle(history: History) -> Signal | None:
    """The least used GPU of the attempt; each second stands for the two minutes that end with it."""
    lowest: Signal | None = None
    for gpu in history.config.gpus:
        column = history.get(f"gpu/{gpu}/util_percent", 10)
        if column is None or not history.training_since:
            continue
        within = column.t >= history.training_since
        t, total = column.t[within], np.concatenate(([0.0], np.cumsum(column.value[within])))
        first = np.searchsorted(t, t - WINDOW_S)
        whole = t - WINDOW_S >= (t[0] if len(t) else 0.0)
        count = np.arange(1, len(t) + 1)
        means = ((total[1:] - total[first]) / (count - first))[whole]
        if len(means) and (lowest is None or means[-1] < lowest.value[-1]):
            lowest = Signal(t[whole], means, {"gpu": str(gpu)})
    return lowest


OF: dict[str, Of] = {
    "kl": _median("kl"),
    "clip": _mean("clip_ratio/region_mean", "cispo_clip_ratio", window=ROLL),
    "ratio": _ratio,
    "entropy": _median("entropy"),
    "entropy_rise": _entropy_rise,
    "entropy_high": _median("entropy"),
    "reward_stuck": _reward_stuck,
    "reward_falling": _reward_falling,
    "reward_saturated": _reward_saturated,
    "component_low": _component_low,
    "component_falling": _component_falling,
    "zero_spread": _mean("frac_reward_zero_std", window=ROLL),
    "length_cap": _length_cap,
    "repetition": _texts(lambda text: text.repeated),
    "empty": _texts(lambda text: text.empty),
    "components": _components,
    "stale": _median("sampling/sampling_logp_difference/mean"),
    "stale_mean": _median("sampling/importance_sampling_ratio/mean"),
    "stale_least": _median("sampling/importance_sampling_ratio/min"),
    "grad_spikes": _grad_spikes,
    "grad_high": _median("grad_norm", window=ROLL),
    "grad_zero": _median("grad_norm", window=ROLL),
    "loss": _loss,
    "not_finite": _not_finite,
    "truncation": _truncation,
    "throughput": _throughput,
    "stalled": _stalled,
    "gpu_idle": _gpu_idle,
}
"""Rule -> its figure."""
