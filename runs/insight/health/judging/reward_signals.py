"""Signals of the health rules about rewards."""

import math
from collections.abc import Sequence

import numpy as np

from controlplane.platform.templatetags.figures import change, significant
from runs.insight.health.config import Component
from runs.insight.health.history import ROLL, Floats, History, Mark, MetricHistory, Sums, noise, rolling_mean
from runs.insight.health.judging.signal import Of, Signal, highest, mean, rolled, rolled_early, run_lengths

LAGS = (30, 60, 180)
"""Numbers of generations over which one component's rise is compared with another's fall."""
MAX_REWARD_SHARE = 1.01
"""Share of the highest possible reward above which the maximum must be wrong."""
SIGNIFICANT_ERRORS = 4.0
"""Number of standard errors from which a change is significant."""
TREND_ERRORS = 2.0
"""Number of standard errors from which a trend is some evidence."""
TYPICAL_GENERATIONS = 100
"""Number of generations within which the reward of a typical run changes."""
LUCK_ERRORS = 2.0
"""Number of standard errors by which the best of many means typically exceeds its expectation."""
MAX_ZERO_SPREAD = 0.9
"""Share of zero-variance groups from which noise in the other groups isn't judged."""
MIN_EVALUATIONS = 5
PARTS = 12
MIN_COMPLETIONS = 2000
"""Minimum number of completions in each of at most PARTS parts of the run in which solved completions are counted."""
FLOOR_SHARE = 0.1
"""Share of a gain, above the lowest possible value, below which the whole gain counts as lost."""
MIN_ZEROS = 500
"""Number of completions with a component at 0 that are enough evidence."""


def _steps_without_trend(history: History, metric: str) -> Signal | None:
    """Compute, at each step, the number of steps so far, or 0 if the metric has a trend."""
    column, mark = history.get(metric, 30), history.marks.get(metric)
    if column is None or mark is None:
        return None
    if _has_risen(mark):  # other rules judge whether it stays there
        return Signal(column.step, np.zeros(len(column)))
    sums = history.sums.get(metric) or Sums()
    trend, steps = _trend(column, sums), column.step
    is_judged = sums.n + np.arange(len(column)) >= max(2 * ROLL, TYPICAL_GENERATIONS * history.config.patience)
    trendless = np.where(is_judged & (np.abs(trend) < TREND_ERRORS), steps, 0).astype(float)
    gain = float(column.value[-ROLL:].mean()) - mark.start
    return Signal(steps, trendless, {"gain": change(gain) or "0"})


def _trend(column: MetricHistory, sums: Sums) -> Floats:
    """Return the slope of a least-squares line through the history up to each step, in standard errors."""
    is_new = column.step > sums.until if sums.n else np.ones(len(column), dtype=bool)
    x, y = np.where(is_new, column.step, 0).astype(float), np.where(is_new, column.value, 0.0)
    added = (is_new.astype(float), x, y, x * x, x * y, y * y)
    n, sx, sy, sxx, sxy, syy = (before + np.cumsum(new) for before, new in zip(sums[1:], added, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        vx, vy, vxy = sxx - sx * sx / n, syy - sy * sy / n, sxy - sx * sy / n
        slope = vxy / vx
        residual = np.maximum(vy - slope * vxy, 1e-12 * np.abs(syy) + 1e-300) / np.maximum(n - 2, 1)
        trend = slope / np.sqrt(residual / vx)
    return np.where((n >= ROLL) & np.isfinite(trend), trend, 0.0)


def _component_falling(history: History) -> Signal | None:
    losses = []
    for part in history.config.components:
        span = part.high - part.low if part.high is not None and part.low is not None else None
        loss = _lost_gain(history, part.metric, span, part.low) if part.weight > 0 else None
        losses.append(loss and loss.with_fields(**_named(part)))
    return highest(losses)


def _named(part: Component) -> dict[str, str]:
    return {"component": f"“{part.name}”", "metric": part.metric}


def _lost_gain(history: History, metric: str, span: float | None, low: float | None) -> Signal | None:
    """Compute the share of the best gain that has been lost, at each step. `span` is the width of the range of possible
    values and `low` its lower end; both are None if unknown."""
    column, mark = history.get(metric, 2 * ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return None
    means = rolling_mean(column.value, ROLL)
    error = mark.noise / np.sqrt(ROLL)
    best = np.maximum.accumulate(means)
    if mark.best_step < int(column.step[0]) + ROLL:
        best = np.maximum(best, mark.best)
    best = best - LUCK_ERRORS * error
    span = abs(mark.best) if span is None else span
    scale = max(mark.best - mark.start, 6 * mark.noise, 0.15 * span, 1e-12)
    lost_share = (best - means) / scale
    if low is not None:
        gone = (best - means > SIGNIFICANT_ERRORS * error * np.sqrt(2)) & (means - low < FLOOR_SHARE * (best - low))
        lost_share = np.where(gone, np.maximum(lost_share, (best - means) / np.maximum(best - low, 1e-12)), lost_share)
    below = means[-1] < mark.start - 2 * error
    fields = {
        "now": significant(float(means[-1])),
        "best": significant(float(mark.best)),
        "best_step": f"{mark.best_step:,}",
        "lost": "it is below its start"
        if below or lost_share[-1] > 1
        else f"{100 * lost_share[-1]:.0f}% of its gain is lost",
    }
    return Signal(column.step[ROLL - 1 :], lost_share, fields)


def _reward_saturated(history: History) -> Signal | None:
    high, low = history.config.highest, history.config.lowest
    reward = rolled(history.get("reward"), rolling_mean, ROLL)
    if reward is None or high is None or low is None or high <= low:
        return None
    share = (reward.value - low) / (high - low)
    # Above 100%, a component exceeds its declared range, so the maximum is unknown.
    return None if bool((share > MAX_REWARD_SHARE).any()) else Signal(reward.at, share)


def _component_low(history: History) -> Signal | None:
    """Return the signal of the lowest component whose range starts at 0, ignoring penalties, which should be 0."""
    scores = [
        (part, score)
        for part in history.config.components
        if part.weight > 0 and part.low == 0 and (score := rolled_early(history.get(part.metric), ROLL, 10)) is not None
    ]
    if not scores:
        return None
    part, score = min(scores, key=lambda scored: float(scored[1].value[-1]))
    empty = run_lengths(history.columns[part.metric].value <= 0)[-len(score.value) :]
    mark = history.marks.get(part.metric)
    fell = mark is not None and mark.best > max(10 * abs(float(score.value[-1])), 0.01)
    why = "it is broken, or too hard for the model, so nothing is learned from it"
    if mark is not None and fell:
        why = f"it scored {significant(mark.best)} at step {mark.best_step:,}, but nothing is learned from it now"
    return Signal(score.at, score.value, {**_named(part), "why": why}, empty * history.config.completions >= MIN_ZEROS)


def _component_stuck(history: History) -> Signal | None:
    """Return the signal of a component that checks answers and stays low although the total has risen, or None."""
    total, reward = history.marks.get("reward"), history.get("reward", 2 * ROLL)
    if total is None or reward is None:
        return None
    if not _has_risen(total) and _trend(reward, history.sums.get("reward") or Sums())[-1] < SIGNIFICANT_ERRORS:
        return None
    parts = [part for part in history.config.components if part.weight > 0]
    heaviest = sorted(parts, key=lambda part: -part.weight)[:1]
    for part in [part for part in parts if part.checks] or heaviest:
        trendless = _steps_without_trend(history, part.metric)
        if trendless is None or part.high is None or part.low is None:
            continue
        level = float(history.columns[part.metric].value[-ROLL:].mean())
        if part.low < level < (part.low + part.high) / 2:
            return Signal(trendless.at, trendless.value, {**_named(part), "now": significant(level)})
    return None


def _has_risen(mark: Mark) -> bool:
    return mark.best - mark.start > 3 * SIGNIFICANT_ERRORS * max(mark.noise, 1e-12) * math.sqrt(2 / ROLL)


def _component_failing(history: History) -> Signal | None:
    shares = []
    for part in history.config.components:
        share = rolled_early(history.get(f"rewards/{part.name}/failed"), 10, 5)
        shares.append(share and share.with_fields(**_named(part)))
    return highest(shares)


def _reward_noise(history: History) -> Signal | None:
    """Estimate an upper bound of the standard deviation within groups whose rewards differ, as a share of the reward's
    range. TRL's `reward_std` is that of the whole batch; its square is hardly less than the groups' mean variance."""
    spread, span = rolled(history.get("reward_std"), rolling_mean, ROLL), history.config.low_to_high
    zero = rolled(history.get("frac_reward_zero_std"), rolling_mean, ROLL)
    if spread is None or zero is None or not span or len(spread.value) != len(zero.value):
        return None
    some = zero.value < MAX_ZERO_SPREAD
    return Signal(spread.at, np.where(some, spread.value / np.sqrt(np.where(some, 1 - zero.value, 1.0)) / span, 1.0))


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


def _lost_meanwhile(history: History, points: Sequence[tuple[int, float]], span: float) -> Signal | None:
    """Compute the share of the points' best gain that is lost, or 0 if the training reward has dropped too."""
    reward, mark = history.get("reward", ROLL), history.marks.get("reward")
    if len(points) < MIN_EVALUATIONS or reward is None or mark is None:
        return None
    steps, value = (np.array(column) for column in zip(*points, strict=True))
    window = 3 if len(points) >= 4 * MIN_EVALUATIONS else 2
    means = rolling_mean(value.astype(float), window)
    loss = np.maximum.accumulate(means) - means
    wobble = max(noise(value), 0.04 * span) / np.sqrt(window)
    gain = np.maximum(np.maximum.accumulate(means) - means[0], max(0.1 * span, 4 * wobble))
    # Judged at each evaluation, and valid until the next one, even if the training reward falls in between.
    then = np.searchsorted(reward.step[ROLL - 1 :], steps[window - 1 :], side="right") - 1
    min_reward = mark.best - max(0.3 * (mark.best - mark.start), 3 * mark.noise)
    is_kept = (then < 0) | (rolling_mean(reward.value, ROLL)[then] > min_reward)
    share = np.where((loss > SIGNIFICANT_ERRORS * wobble) & is_kept, loss / gain, 0.0)
    fields = {"now": significant(float(means[-1])), "best": significant(float(means.max()))}
    return Signal(
        steps[window - 1 :], share, {**fields, "best_step": f"{int(steps[int(np.argmax(means)) + window - 1]):,}"}
    )


def _components(history: History) -> Signal | None:
    columns = [
        (part, column) for part in history.config.components if (column := history.get(part.metric)) and part.weight
    ]
    length = min((len(column) for _, column in columns), default=0)
    moves = [move for lag in LAGS if length >= lag + 2 * ROLL and (move := _trade(columns, length, lag))]
    return max(moves, key=lambda signal: signal.value[-1]) if moves and len(columns) > 1 else None


def _trade(columns: list[tuple[Component, MetricHistory]], length: int, lag: int) -> Signal:
    """Compute the share of its range that a component lost within `lag` generations while another one rose."""
    has_risen, loss_shares = [], []
    for part, column in columns:
        value = np.copysign(1.0, part.weight) * column.value[-length:]
        means = rolling_mean(value, ROLL)
        changes = means[lag:] - means[:-lag]
        span = part.high - part.low if part.high is not None and part.low is not None else float(np.ptp(value))
        min_change = max(SIGNIFICANT_ERRORS * noise(value) * np.sqrt(2 / ROLL), 0.05 * span, 1e-12)
        has_risen.append(changes > min_change)
        loss_shares.append(np.where(changes < -min_change, -changes / max(span, 1e-12), 0.0))
    loss = np.max(loss_shares, axis=0) * np.any(has_risen, axis=0)
    falling = columns[int(np.argmax([losses[-1] for losses in loss_shares]))][0]
    rising = columns[next((i for i, gains in enumerate(has_risen) if gains[-1]), 0)][0]
    why = f"the policy may be gaming “{rising.name}”"
    if rising.checks:
        why = f"“{rising.name}” checks answers, so check what “{falling.name}” rewards"
    fields = {"rising": f"“{rising.name}”", "falling": f"“{falling.name}”", "why": why}
    return Signal(columns[0][1].step[-len(loss) :], loss, fields)


OF: dict[str, Of] = {
    "reward_stuck": lambda history: None if history.solved else _steps_without_trend(history, "reward"),
    "reward_falling": lambda history: _lost_gain(history, "reward", history.config.low_to_high, history.config.lowest),
    "reward_saturated": _reward_saturated,
    "component_low": _component_low,
    "component_falling": _component_falling,
    "zero_spread": mean("frac_reward_zero_std", window=ROLL),
    "components": _components,
    "component_stuck": _component_stuck,
    "component_failing": _component_failing,
    "reward_noise": _reward_noise,
    "eval_falling": lambda history: _lost_meanwhile(history, history.evaluations, history.config.low_to_high or 1.0),
    "solved_falling": _solved_falling,
}
