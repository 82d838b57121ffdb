"""Signals of the health rules about gamed rewards: a judge that diverges, and length that explains the reward."""

from collections.abc import Iterator

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.config import Component
from runs.insight.health.evidence import LENGTH_LENGTH, LENGTH_REWARD, REWARD_REWARD
from runs.insight.health.history import Floats, History, MetricHistory, noise
from runs.insight.health.judging.signal import Signal, SignalReader, highest

MIN_GENERATIONS = 60
MIN_FLAT_GENERATIONS = 150
"""Number of generations within which a judge should follow the reward."""
MIN_EVALUATIONS = 6
ERRORS = 4.0
"""Number of standard errors from which a change is real."""
EVALUATION_ERRORS, FEW_EVALUATIONS = 3.0, 8.0
"""Standard errors from which a change of evaluations is real: the first number, plus the second divided by their
count."""
MIN_RISE = 0.05
"""Share of its range by which the reward must rise."""
MIN_FALL = 0.05
MAX_FLAT_SHARE = 0.15
"""Share of the trained reward's rise, each as a share of its range, below which a judge stays flat."""
ROOM = 0.8
"""Share of a judge's range above which it has little room left to rise."""
FLOOR = 0.03
"""Share of a judge's range up to which it rejects nearly everything, so that it can't recognise better answers."""
MIN_CORRELATION = 0.4
MIN_GROWTH = 1.3
"""Growth of the mean length from which length is a possible explanation."""
MIN_STEPS = 15
"""Number of steps with stored completions from which their correlation is judged."""
LENGTH = "completions/mean_length"


WINDOWS = (90, 240)
"""Numbers of newest generations over which changes are judged."""


class _Change:
    """The change of a series from its first third to its last one."""

    def __init__(self, value: Floats, span: float | None) -> None:
        third = max(1, len(value) // 3)
        self.start, self.now = float(value[:third].mean()), float(value[-third:].mean())
        rough = float(np.sqrt(np.mean(np.diff(value) ** 2) / 2)) if len(value) > 1 else 0.0
        self.error = max(noise(value), rough, 1e-9) * float(np.sqrt(2 / third))
        self.varies = bool(np.ptp(value) > 0)
        self.span = span or max(abs(self.start), abs(self.now), float(np.ptp(value)), 1e-9)

    @property
    def share(self) -> float:
        return (self.now - self.start) / self.span

    @property
    def errors(self) -> float:
        return (self.now - self.start) / self.error

    @property
    def has_risen(self) -> bool:
        return self.errors > ERRORS and self.share > MIN_RISE


def _judge_parted(history: History) -> Signal | None:
    return highest(
        _parted(history, metric, judge, window) for metric, judge in history.config.judges for window in WINDOWS
    )


def _parted(history: History, metric: str, judge: Component, window: int) -> Signal | None:
    """Compute the trained reward's rise, as a share of its range, if the judge diverges from it within a window."""
    reward, judged = history.get("reward", MIN_GENERATIONS), history.get(metric)
    if reward is None or judged is None:
        return None
    since = int(reward.step[-window:][0])
    if is_evaluated := metric != judge.metric:  # evaluations are rare, so all that are remembered count
        since = min(since, int(judged.step[0])) if window == WINDOWS[-1] else since
    of_window = judged.pick(judged.step >= since)
    if len(of_window) < MIN_EVALUATIONS:
        return None
    newest = reward.value[-window:]
    errors = ERRORS if not is_evaluated else EVALUATION_ERRORS + FEW_EVALUATIONS / len(of_window)
    span = judge.high - judge.low if judge.high is not None and judge.low is not None else None
    trained, change = _Change(newest, history.config.low_to_high), _Change(of_window.value, span)
    # The newest value alone must not decide, since there may be few.
    both = change, _Change(of_window.value[:-1], span)
    falls = all(each.errors < -errors and each.share < -MIN_FALL for each in both)
    if not is_evaluated and not judge.checks:  # such as brevity, which may fall as answers improve
        falls = falls and not _answers_improve(history, since)
    is_long = len(newest) >= MIN_FLAT_GENERATIONS
    is_flat = is_long and judge.checks and span is not None and _is_flat(history, judge, change, since)
    rise = trained.share if trained.has_risen and (falls or is_flat) else 0.0
    fields = {
        "metric": metric,
        "judge": f"“{judge.name}”",
        "moves": "falls" if falls else "stays flat",
        "start": significant(trained.start),
        "now": significant(trained.now),
        "judge_start": significant(change.start),
        "judge_now": significant(change.now),
    }
    return Signal(reward.step[-1:], np.array([rise]), fields)


def _is_flat(history: History, judge: Component, change: _Change, since: int) -> bool:
    """Return whether a judge that checks answers hasn't risen with what is trained to get answers right. While a run
    learns the form first, nothing has risen that the judge could follow."""
    parts = [part for part in history.config.components if part.weight > 0]
    goals = [part for part in parts if part.checks] or parts
    low, high = judge.low or 0.0, judge.high or 1.0
    if not low + FLOOR * (high - low) < change.now <= low + ROOM * (high - low) or not change.varies:
        return False
    for part in goals:
        column = history.get(part.metric, MIN_GENERATIONS)
        if column is None or part.high is None or part.low is None:
            continue
        rise = _Change(column.pick(column.step >= since).value, part.high - part.low)
        if rise.has_risen and change.share + 2 * change.error / change.span < max(
            MAX_FLAT_SHARE * rise.share, MIN_RISE
        ):
            return rise.share > 3 * MIN_RISE
    return False


def _length_explains(history: History) -> Signal | None:
    """Compute the share of the reward's rise that the growth of the completions explains."""
    lengths, reward = history.get(LENGTH, MIN_GENERATIONS), history.get("reward", MIN_GENERATIONS)
    products, squares, spreads = (
        history.get(name, MIN_STEPS) for name in (LENGTH_REWARD, LENGTH_LENGTH, REWARD_REWARD)
    )
    if lengths is None or reward is None or products is None or squares is None or spreads is None:
        return None
    product, square, spread = (float(column.value.sum()) for column in (products, squares, spreads))
    correlation = product / max((square * spread) ** 0.5, 1e-12)
    shares = [_explained(history, lengths, reward, product / max(square, 1e-12), window) for window in WINDOWS]
    share, longer = max(shares, key=lambda pair: pair[0])
    fields = {
        "start": significant(longer.start),
        "now": significant(longer.now),
        "correlation": significant(correlation),
    }
    value = share if correlation > MIN_CORRELATION else 0.0
    return Signal(reward.step[-1:], np.array([value]), fields)


def _explained(
    history: History, lengths: MetricHistory, reward: MetricHistory, slope: float, window: int
) -> tuple[float, _Change]:
    """Return the explained share of the reward's rise within a window, or 0 if completions haven't grown or answers
    have become better; and the change of the length."""
    longer, rise = _Change(lengths.value[-window:], None), _Change(reward.value[-window:], history.config.low_to_high)
    if not rise.has_risen or longer.errors < ERRORS or longer.now < MIN_GROWTH * longer.start:
        return 0.0, longer
    if _answers_improve(history, int(reward.step[-window:][0]), rise.now - rise.start):
        return 0.0, longer
    return slope * (longer.now - longer.start) / max(rise.now - rise.start, 1e-12), longer


def _answers_improve(history: History, since: int, rise: float = 0.0) -> bool:
    """Return whether a reward that checks answers has risen; if it is trained on, by at least a third of `rise`."""
    for metric, weight in _answers(history):
        column = history.get(metric)
        of_window = None if column is None else column.pick(column.step >= since)
        if of_window is None or len(of_window) < MIN_EVALUATIONS:
            continue
        change = _Change(of_window.value, None)
        gained = change.now - change.start
        if gained > 2 * change.error and (not weight or weight * gained > rise / 3):
            return True
    return False


def _answers(history: History) -> Iterator[tuple[str, float]]:
    """Yield the metric and the weight of each reward that checks answers; the weight is 0 if it isn't trained on."""
    for part in history.config.components:
        if part.checks and part.weight > 0:
            yield part.metric, part.weight
    for metric, part in history.config.judges:
        if part.checks:
            yield metric, 0.0


SIGNALS: dict[str, SignalReader] = {"judge_parted": _judge_parted, "length_explains": _length_explains}
