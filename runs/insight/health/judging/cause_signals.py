"""Signals of the health rules about why rewards change: the scorer, lengths, sources of prompts, memorized prompts."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.config import Component
from runs.insight.health.history import ROLL, ZERO_SPREAD, Floats, History, MetricHistory, noise, rolling_mean
from runs.insight.health.judging.reward_signals import (
    MAX_ZERO_SPREAD,
    MIN_EVALUATIONS,
    PARTIAL_LOSS,
    RISE_ERRORS,
    SIGNIFICANT_ERRORS,
    has_learned,
    without_falls,
)
from runs.insight.health.judging.shapes import AT_ONCE, MIN_TREND, SIDE, correlation, jump, slope_errors
from runs.insight.health.judging.signal import Signal, SignalReader, highest, rolled
from workers.contract.run.prompts import sources

NEWEST = 10
"""Number of generations over which a changed scorer is judged."""
TOLERANCE = 0.02
"""Share of a component's range by which a score may be outside of it."""
MIN_SCORE = 0.2
"""Share of its range that a component must have scored before it can count as broken."""
MAX_BROKEN_SHARE = 0.003
"""Share of a component's range up to which its mean is at the lower end."""
MIN_CORRELATION = 0.8
MIN_RISE_ERRORS = 2.0
GAP_ERRORS = 3.0
LUCK_SHARE = 0.6
"""Share of the largest of many errors that the best mean, and the newest, are apart by chance."""
SURELY_REAL = 1.5
"""Multiple of a real loss from which it may be most of the gain; a smaller one may look so because of chance."""
MIN_TIMES_OTHERS = 2.0
"""Multiple of the other sources' mean loss above which a source's loss is its own."""
ASSUMED_CHANGES = 4
PARTS = 12
MIN_COMPLETIONS = 2000
"""Minimum number of completions in each of at most PARTS parts of the run in which solved completions are counted."""
MAX_SPARSE_ZERO_SPREAD = 0.97
"""Share of zero-variance groups that counts at most while completions are solved now and then, as at a sparse start."""
EXTREME = 0.05
"""Share of the reward's range at its ends within which nearly all completions score the same."""
ZERO_SPREAD_CAUSES = {
    "low": "the prompts are too hard for the model, or the scorer accepts nothing",
    "high": "the prompts have become too easy",
    "alike": "it has been so from the start, so the completions of a prompt may be identical (greedy sampling or a "
    "fixed seed)",
    "": "most prompts are solved always or never",
}
LENGTH = "completions/mean_length"


def _scorer_changed(history: History) -> Signal | None:
    config = history.config
    total = Component("reward", 1.0, config.lowest, config.highest)
    parts = [part for part in config.components if part.weight > 0]
    signals = [_changed(history, part, f"“{part.name}”", part.metric) for part in parts]
    if len(parts) != 1:
        signals.append(_changed(history, total, "The reward", "reward"))
    return highest(signals)


def _changed(history: History, part: Component, name: str, metric: str) -> Signal | None:
    """Compute the share of the newest generations whose mean is out of the component's range or has the opposite sign,
    or is at the end of the range since a sudden fall."""
    column, mark = history.get(metric, 2 * NEWEST), history.marks.get(metric)
    if column is None or mark is None:
        return None
    span = part.high - part.low if part.high is not None and part.low is not None else 0.0
    wrong, why = _outside(part, span, mark.start, column.value), "outside of its declared range"
    change = jump(column)
    if change is not None and len(column) - change.index >= SIDE:
        since = np.arange(len(column)) >= change.index
        error = SIGNIFICANT_ERRORS * max(noise(column.value), 1e-12) / np.sqrt(SIDE)
        if change.before > error and change.after < -error:
            why = f"{why}, perhaps with the opposite sign" if wrong.any() else "with the opposite sign"
            wrong = since & (column.value < 0)
        elif part.low == 0 and span and metric != "reward" and not wrong.any():
            broke = change.before > MIN_SCORE * span and change.after < MAX_BROKEN_SHARE * span
            wrong, why = since & broke & (column.value < MAX_BROKEN_SHARE * span), "which no policy unlearns at once"
    first = int(np.argmax(wrong)) if wrong.any() else 0
    fields = {
        "component": name,
        "metric": metric,
        "now": significant(float(column.value[-NEWEST:].mean())),
        "since": f"{int(column.step[first]):,}",
        "before": significant(change.before if change is not None else mark.best),
        "why": why,
    }
    return Signal(column.step[NEWEST - 1 :], rolling_mean(wrong.astype(float), NEWEST), fields)


def _outside(part: Component, span: float, start: float, value: Floats) -> "np.typing.NDArray[np.bool_]":
    """Return which values are out of the declared range, if the run's first ones are within it."""
    if not span or part.low is None or part.high is None:
        return np.zeros(len(value), dtype=bool)
    low, high = part.low - TOLERANCE * span, part.high + TOLERANCE * span
    return ((value < low) | (value > high)) & (low <= start <= high)


def _length_rewarded(history: History) -> Signal | None:
    """Compute the growth of the completions since the start, if a component has risen with it while the one that should
    rise has not."""
    lengths, mark = history.get(LENGTH, 3 * ROLL), history.marks.get(LENGTH)
    parts = [part for part in history.config.components if part.weight > 0]
    goal = next((part for part in parts if part.checks), max(parts, key=lambda part: part.weight, default=None))
    level = history.get(goal.metric, 3 * ROLL) if goal is not None else None
    if lengths is None or mark is None or goal is None or level is None or has_learned(history, goal.metric):
        return None
    if level.value[-ROLL:].max() <= (goal.low or 0.0):  # nothing is accepted, whatever the length
        return None
    # It may rise after each switch to harder prompts.
    goal_values = level.value[-3 * ROLL :], without_falls(goal, level)
    rises = any(slope_errors(values) > MIN_RISE_ERRORS for values in goal_values)
    means = rolling_mean(lengths.value, ROLL)
    others = [(_correlation(history, part, lengths), part.name) for part in parts if part is not goal]
    share, paid = max(others, default=(0.0, ""))
    change = jump(lengths)  # what a reward pays for grows little by little
    is_at_once = change is not None and change.size > AT_ONCE * (float(means[-1]) - mark.start)
    is_paid = share > MIN_CORRELATION and not rises and not is_at_once
    growth = means / max(mark.start, 1.0) if is_paid else np.zeros(len(means))
    fields = {
        "start": significant(mark.start),
        "now": significant(float(means[-1])),
        "paid": f"“{paid}”",
        "goal": f"“{goal.name}”",
        "level": significant(float(level.value[-ROLL:].mean())),
    }
    return Signal(lengths.step[ROLL - 1 :], growth, fields)


def _correlation(history: History, part: Component, lengths: MetricHistory) -> float:
    """Return the correlation of a component that has risen with the length, or 0 for other components."""
    column = history.get(part.metric, 3 * ROLL)
    if column is None or not has_learned(history, part.metric):
        return 0.0
    size = min(len(column), len(lengths))
    return correlation(*(rolling_mean(values[-size:], NEWEST) for values in (column.value, lengths.value)))


def _source_falling(history: History) -> Signal | None:
    """Compute the share of its reward that a source's prompts have lost, unless the other sources' have lost about as
    much. The total isn't compared, since a large source's fall is a large part of the total's."""
    signals = []
    metrics = sources(history.columns)
    loose = {metric: loss.value[-1] for metric in metrics if (loss := _lost_share(history, metric, 0.0)) is not None}
    for metric in loose:
        loss, others = _lost_share(history, metric), [share for other, share in loose.items() if other != metric]
        if loss is None or not others:
            continue
        if loss.value[-1] <= MIN_TIMES_OTHERS * float(np.mean(others)):
            loss = replace(loss, value=np.zeros(len(loss.value)))
        signals.append(loss.with_fields(source=f"“{metrics[metric]}”", metric=metric))
    return highest(signals)


def _lost_share(history: History, metric: str, min_errors: float = SIGNIFICANT_ERRORS) -> Signal | None:
    """Compute the share of a metric's best mean, above the lowest reward, that has been lost. Losses of at most
    `min_errors` standard errors count as chance."""
    column, mark = history.get(metric, ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return None
    means, error = rolling_mean(column.value, ROLL), max(mark.noise, 1e-12) / np.sqrt(ROLL)
    best = max(mark.best, float(means.max())) - 2 * error
    lost = np.where(best - means > min_errors * error * np.sqrt(2), best - means, 0.0)
    share = lost / max(best - (history.config.lowest or 0.0), 1e-12)
    fields = {
        "now": significant(float(means[-1])),
        "best": significant(mark.best),
        "best_step": f"{mark.best_step:,}",
    }
    return Signal(column.step[ROLL - 1 :], share, fields)


def _eval_gap(history: History) -> Signal | None:
    """Compute the growth of the gap between training and validation rewards, as a share of the reward's range, while
    the validation reward is not rising."""
    gaps = np.array([gap for _, gap in history.gaps])
    values = np.array([value for _, value in history.evaluations[-len(gaps) :]]) if len(gaps) else gaps
    if len(gaps) < MIN_EVALUATIONS or len(values) != len(gaps):
        return None
    third = max(2, len(gaps) // 3)
    first, last = float(gaps[:third].mean()), float(gaps[-third:].mean())
    error = max(noise(gaps), _spread(gaps, _of_rows(history))) * np.sqrt(2 / third)
    recent = values[-max(MIN_TREND, len(values) // 2) :]
    is_real = last - first > GAP_ERRORS * error and slope_errors(gaps) > RISE_ERRORS and slope_errors(recent) < 1.5
    share = (last - first) / (history.config.low_to_high or 1.0) if is_real else 0.0
    fields = {"start": significant(first), "now": significant(last), "validation": significant(float(values[-1]))}
    return Signal(np.array([history.gaps[-1][0]]), np.array([share]), fields)


def _solved_falling(history: History) -> Signal | None:
    """Compute how much of the best solved share has been lost, over stretches with equally many completions."""
    total_completions = sum(completions for _, completions, _ in history.solved_shares)
    points: list[tuple[int, float]] = []
    count = solved = 0
    for step, completions, newly_solved in history.solved_shares:
        count, solved = count + completions, solved + newly_solved
        if count >= max(total_completions / PARTS, MIN_COMPLETIONS):
            points.append((step, solved / count))
            count = solved = 0
    return _lost_meanwhile(history, points, 1.0)


def _spread(value: Floats, of_rows: float) -> float:
    """Return the standard deviation of neighbours. What chance alone makes of so few rows counts as a few more of their
    differences, since the first ones may be alike by chance."""
    changes = np.diff(value)
    return float(np.sqrt((changes @ changes / 2 + ASSUMED_CHANGES * of_rows**2) / (len(changes) + ASSUMED_CHANGES)))


def _eval_falling(history: History) -> Signal | None:
    span = history.config.low_to_high or 1.0
    return _lost_meanwhile(history, history.evaluations, span, _of_rows(history))


def _of_rows(history: History) -> float:
    """Return the standard deviation of a validation reward that the number of its rows explains, or 0 if unknown."""
    span, low, rows = history.config.low_to_high, history.config.lowest, history.config.eval_rows
    if not rows or not span or low is None or not history.evaluations:
        return 0.0
    level = float(np.clip((np.mean([value for _, value in history.evaluations]) - low) / span, 0.05, 0.95))
    return span * float(np.sqrt(level * (1 - level) / rows))


def _lost_meanwhile(
    history: History, points: Sequence[tuple[int, float]], span: float, of_rows: float = 0.0
) -> Signal | None:
    """Compute the share of the points' best gain that is lost, or 0 if the training reward has dropped too. `of_rows`:
    the standard deviation that so few rows explain."""
    reward, reward_summary = history.get("reward", ROLL), history.marks.get("reward")
    if len(points) < MIN_EVALUATIONS or reward is None or reward_summary is None:
        return None
    steps, value = (np.array(column) for column in zip(*points, strict=True))
    window = 3 if len(points) >= 4 * MIN_EVALUATIONS else 2
    means = rolling_mean(value.astype(float), window)
    loss = np.maximum.accumulate(means) - means
    # The median of a few differences says little, so all of them count.
    wobble = max(noise(value), _spread(value, of_rows), 0.04 * span) / np.sqrt(window)
    gain = np.maximum(np.maximum.accumulate(means) - means[0], max(0.1 * span, 4 * wobble))
    # Judged at each evaluation, and valid until the next one, even if the training reward falls in between.
    then = np.searchsorted(reward.step[ROLL - 1 :], steps[window - 1 :], side="right") - 1
    min_reward = reward_summary.best - max(0.3 * (reward_summary.best - reward_summary.start), 3 * reward_summary.noise)
    is_kept = (then < 0) | (rolling_mean(reward.value, ROLL)[then] > min_reward)
    # The best of many means is above their expectation by chance, and the newest may be as far below.
    real_loss = (SIGNIFICANT_ERRORS + LUCK_SHARE * np.sqrt(2 * np.log(len(means)))) * wobble
    is_real = loss > real_loss
    if slope_errors(value[int(np.argmax(means)) :].astype(float), wobble) < -GAP_ERRORS:
        is_real |= loss > GAP_ERRORS * wobble
    share = np.where(is_real & is_kept, loss / gain, 0.0)
    share = np.where(loss > SURELY_REAL * real_loss, share, np.minimum(share, PARTIAL_LOSS))
    fields = {"now": significant(float(means[-1])), "best": significant(float(means.max()))}
    return Signal(
        steps[window - 1 :], share, {**fields, "best_step": f"{int(steps[int(np.argmax(means)) + window - 1]):,}"}
    )


def _zero_spread(history: History) -> Signal | None:
    """Average the share of zero-variance groups, and name the cause that the reward's level suggests."""
    share, reward, low = (
        rolled(history.get(ZERO_SPREAD), rolling_mean, ROLL),
        history.get("reward"),
        history.config.lowest,
    )
    if share is None:
        return None
    level = None if reward is None else _level(history, float(reward.value[-ROLL:].mean()))
    end = _end(level)
    if end == "low" and reward is not None and low is not None and float(reward.value.max()) > low:
        share = replace(share, value=np.minimum(share.value, MAX_SPARSE_ZERO_SPREAD))
    mark = history.marks.get("reward")
    was_inside = mark is None or _end(_level(history, mark.start)) == ""
    if end == "" and was_inside and history.firsts.get(ZERO_SPREAD, 0.0) > MAX_ZERO_SPREAD:
        end = "alike"
    return share.with_fields(why=ZERO_SPREAD_CAUSES[end])


def _end(level: float | None) -> str:
    """Return at which end of the range a level is: "low", "high", or ""."""
    if level is None:
        return ""
    return "low" if level < EXTREME else "high" if level > 1 - EXTREME else ""


def _level(history: History, reward: float) -> float | None:
    """Return the reward's level within its range, from 0 to 1, or None if the range is unknown."""
    low, span = history.config.lowest, history.config.low_to_high
    return (reward - low) / span if low is not None and span else None


SIGNALS: dict[str, SignalReader] = {
    "zero_spread": _zero_spread,
    "scorer_changed": _scorer_changed,
    "length_rewarded": _length_rewarded,
    "source_falling": _source_falling,
    "eval_gap": _eval_gap,
    "eval_falling": _eval_falling,
    "solved_falling": _solved_falling,
}
