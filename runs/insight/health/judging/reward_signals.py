"""Signals of the health rules about rewards."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controlplane.platform.templatetags.figures import change, significant
from runs.insight.health.config import Component
from runs.insight.health.history import ROLL, START, Floats, History, Mark, MetricHistory, Sums, noise, rolling_mean
from runs.insight.health.judging.shapes import SIDE, Jump, jump, slope_errors, step_fall
from runs.insight.health.judging.signal import Signal, SignalReader, highest, rolled, rolled_early, run_lengths
from workers.contract.run.prompts import MEAN_REWARD

UNCERTAIN_ERRORS = 1.0
"""Number of standard errors from which a trend may become significant with twice as many steps."""
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
TYPICAL_STEPS = 1200
"""Number of steps within which that reward changes if many updates share a batch."""
TYPICAL_GAIN = 0.1
"""Share of the range that a run learns at least within these generations. While noise may hide it, it isn't missed."""
MIN_STUCK_GENERATIONS = 25
RISE_ERRORS = 2.5
"""Number of standard errors from which the validation reward rises."""
LUCK_ERRORS = 2.0
"""Number of standard errors by which the best of many means typically exceeds its expectation."""
MAX_ZERO_SPREAD = 0.9
"""Share of zero-variance groups from which noise in the other groups isn't judged."""
MAX_FALLS = 3
"""Maximum number of sudden falls, such as a curriculum's switches to harder prompts, that are not taken for a trade."""
MAX_TRADE_GENERATIONS = 30
"""Number of generations after which a trade between components is over."""
MIN_EVALUATIONS = 5
ADAPTING_GENERATIONS = 30
"""Number of generations after a sudden fall within which a run may show that it adapts to new prompts."""
RECOVERY_ERRORS = 1.5
PARTIAL_SHARE = 0.45
"""Minimum share of the reward that a fall due to harder prompts leaves."""
PARTIAL_LOSS = 0.65
"""Maximum share of a gain that counts as lost by a sudden fall, since new prompts may be the reason."""
FLOOR_SHARE = 0.1
"""Share of a gain, above the lowest possible value, below which the whole gain counts as lost."""
SPARSE_STEPS = 300
"""Number of steps in which a component that checks answers may begin to accept some; fewer in short runs."""
SPARSE_EXTENSION = 1.5
MAX_REFUSING_SHARE = 0.01
"""Share of a component's range below which its best mean shows that it hardly accepts anything."""
MIN_ZEROS = 500
"""Number of completions with a component at 0 that are enough evidence."""


def _reward_stuck(history: History) -> Signal | None:
    if history.solved or unproven(history):
        return None
    steps = _steps_without_trend(history, history.progress, history.config.low_to_high)
    if steps is not None and _rises(history):
        return replace(steps, value=np.zeros(len(steps.value)))
    # Where later prompts may be harder, a flat reward may hide a rise.
    return steps and (replace(steps, value=steps.value / 2) if history.config.in_order else steps)


def _rises(history: History) -> bool:
    return slope_errors(np.array([value for _, value in history.evaluations])) > RISE_ERRORS


def has_learned(history: History, metric: str) -> bool:
    """Return whether the metric has risen since the start, or has a trend."""
    column, mark = history.get(metric, ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return False
    trend, _ = _trend(column, history.sums.get(metric) or Sums())
    return _has_risen(mark) or float(trend[-1]) > TREND_ERRORS + 0.5


def _steps_without_trend(history: History, metric: str, span: float | None) -> Signal | None:
    """Compute, at each step, the number of steps so far, or 0 if the metric has a trend, or may have a usual one that
    its noise hides. If it may have a rising one, half of the steps count. `span`: the width of the metric's range."""
    column, mark = history.get(metric, ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return None
    if _has_risen(mark):  # other rules judge whether it stays there
        return Signal(column.step, np.zeros(len(column)))
    sums = history.sums.get(metric) or Sums()
    (trend, error), steps = _trend(column, sums), column.step
    typical = min(TYPICAL_GENERATIONS, TYPICAL_STEPS / max(history.config.updates, 1)) * history.config.patience
    generations = sums.n + np.arange(len(column))
    most_gained = (np.maximum(trend, 0.0) + TREND_ERRORS) * error
    is_seen = most_gained < TYPICAL_GAIN * span * generations / typical if span else np.ones(len(column), dtype=bool)
    is_judged = (generations >= max(MIN_STUCK_GENERATIONS, typical)) & is_seen
    trendless = np.where(is_judged & (np.abs(trend) < TREND_ERRORS), steps, 0).astype(float)
    trendless = np.where(trend > UNCERTAIN_ERRORS, trendless / 2, trendless)
    gain = float(column.value[-ROLL:].mean()) - mark.start
    return Signal(steps, trendless, {"gain": change(gain) or "0"})


def _trend(column: MetricHistory, sums: Sums) -> tuple[Floats, Floats]:
    """Return the slope of a least-squares line through the history up to each step, in standard errors, and the
    standard error of the gain along that line."""
    is_new = column.step > sums.until if sums.n else np.ones(len(column), dtype=bool)
    x, y = np.where(is_new, column.step, 0).astype(float), np.where(is_new, column.value, 0.0)
    added = (is_new.astype(float), x, y, x * x, x * y, y * y)
    n, sx, sy, sxx, sxy, syy = (before + np.cumsum(new) for before, new in zip(sums[1:], added, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        vx, vy, vxy = sxx - sx * sx / n, syy - sy * sy / n, sxy - sx * sy / n
        slope = vxy / vx
        residual = np.maximum(vy - slope * vxy, 1e-12 * np.abs(syy) + 1e-300) / np.maximum(n - 2, 1)
        trend = slope / np.sqrt(residual / vx)
        error = np.sqrt(12 * residual / n)  # of the slope, times the length of as many equally spaced steps
    return np.where((n >= ROLL) & np.isfinite(trend), trend, 0.0), error


def _component_falling(history: History) -> Signal | None:
    losses = []
    for part in history.config.components:
        span = part.high - part.low if part.high is not None and part.low is not None else None
        loss = lost_gain(history, part.metric, span, part.low) if part.weight > 0 else None
        losses.append(loss and loss.with_fields(**named(part)))
    return highest(losses)


def named(part: Component) -> dict[str, str]:
    return {"component": f"“{part.name}”", "metric": part.metric}


def lost_gain(history: History, metric: str, span: float | None, low: float | None) -> Signal | None:
    """Compute the share of the best gain that has been lost, at each step. `span` is the width of the range of possible
    values and `low` its lower end; both are None if unknown."""
    column, mark = history.get(metric, ROLL), history.marks.get(metric)
    if column is None or mark is None:
        return None
    means = rolling_mean(column.value, ROLL)
    error = max(mark.noise / np.sqrt(ROLL), _error_of_counts(history, mark.best, span, low))
    best = np.maximum.accumulate(means)
    if mark.best_step < int(column.step[0]) + ROLL:
        best = np.maximum(best, mark.best)
    best = best - LUCK_ERRORS * error
    span = abs(mark.best) if span is None else span
    scale = max(mark.best - mark.start, 6 * mark.noise, 0.15 * span, 1e-12)
    lost_share = (best - means) / scale
    gone = np.zeros(len(means), dtype=bool)
    if low is not None:
        gone = (best - means > SIGNIFICANT_ERRORS * error * np.sqrt(2)) & (means - low < FLOOR_SHARE * (best - low))
        lost_share = np.where(gone, np.maximum(lost_share, (best - means) / np.maximum(best - low, 1e-12)), lost_share)
    if metric != MEAN_REWARD and _falls_by_design(history):
        lost_share = np.where(gone, lost_share, 0.0)
    fall = _partial_fall(column, low)
    if fall is not None:
        lost_share = _after_partial_fall(column, fall, lost_share)
    below = means[-1] < mark.start - 2 * error
    fields = {
        "now": significant(float(means[-1])),
        "best": significant(float(mark.best)),
        "best_step": f"{mark.best_step:,}",
        "lost": "it is below its start"
        if below or lost_share[-1] > 1
        else f"{100 * lost_share[-1]:.0f}% of its gain is lost",
        "how": _how(fall),
    }
    return Signal(column.step[ROLL - 1 :], lost_share, fields)


def _falls_by_design(history: History) -> bool:
    """Return whether rewards in training fall although nothing is forgotten: prompts are selected by their rewards, or
    prompts in order get harder, and the validation reward, if there is one, has kept its level."""
    if history.selects:
        return True
    values = np.array([value for _, value in history.evaluations])
    if len(values) < MIN_EVALUATIONS:
        return history.config.in_order and not history.config.eval_every
    means = rolling_mean(values, 2)
    error = max(noise(values), float(np.sqrt(np.mean(np.diff(values) ** 2) / 2))) / np.sqrt(2)
    return history.config.in_order and bool(means[-1] > means.max() - SIGNIFICANT_ERRORS * error)


def _error_of_counts(history: History, best: float, span: float | None, low: float | None) -> float:
    """Estimate the standard error of a best mean near the lowest value, where a few lucky completions decide it."""
    if not span or low is None or not history.config.completions:
        return 0.0
    share = min(max((best - low) / span, 0.0), 1.0)
    return span * math.sqrt(2 * share * (1 - share) / (history.config.completions * ROLL))


def _partial_fall(column: MetricHistory, low: float | None) -> Jump | None:
    """Return a sudden fall that leaves much of the reward, as with harder prompts, or None."""
    fall = jump(column)
    if fall is None or low is None or fall.size >= 0 or fall.after - low <= PARTIAL_SHARE * (fall.before - low):
        return None
    return fall


def _after_partial_fall(column: MetricHistory, fall: Jump, lost_share: Floats) -> Floats:
    """Ignore a sudden fall to a lower level, as with harder prompts, if it is new or if the metric rises again."""
    later = column.value[fall.index :]
    regained = float(later[-SIDE:].mean() - later[:SIDE].mean()) / len(later) * TYPICAL_GENERATIONS
    adapts = slope_errors(later) > RECOVERY_ERRORS and regained > -fall.size / 2
    is_open = len(later) >= ADAPTING_GENERATIONS and not adapts
    capped: Floats = np.where(column.step[ROLL - 1 :] >= fall.step, np.minimum(lost_share, PARTIAL_LOSS), lost_share)
    return capped if is_open else np.where(column.step[ROLL - 1 :] >= fall.step, 0.0, lost_share)


def _how(fall: Jump | None) -> str:
    if fall is None:
        return ""
    return f" It fell at once at step {fall.step:,}, as with harder prompts or a changed scorer, not little by little."


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
    waiting = unproven(history)
    scores = [
        (part, score)
        for part in history.config.components
        if part.weight > 0
        and part.low == 0
        and part not in waiting
        and (score := rolled_early(history.get(part.metric), ROLL, 10)) is not None
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
    return Signal(score.at, score.value, {**named(part), "why": why}, empty * history.config.completions >= MIN_ZEROS)


def unproven(history: History) -> list[Component]:
    """Return the components that check answers, have hardly accepted one so far, and may still begin to: hard tasks
    start with zeros, for longer if the form is learned first or if an answer has been right by luck. Groups without
    spread have a rule of their own."""
    limit = SPARSE_STEPS * history.config.patience
    if history.step >= SPARSE_EXTENSION * limit:
        return []
    reward = history.get("reward", START)
    is_rising = reward is not None and slope_errors(reward.value[-3 * ROLL :]) > TREND_ERRORS
    waiting = []
    for part in history.config.components:
        column, mark = history.get(part.metric), history.marks.get(part.metric)
        if not part.checks or part.weight <= 0 or part.low != 0 or column is None:
            continue
        may_begin = history.step < limit or is_rising or bool(column.value.max() > 0)
        if may_begin and (mark is None or mark.best < MAX_REFUSING_SHARE * (part.high or 1.0)):
            waiting.append(part)
    return waiting


def _component_stuck(history: History) -> Signal | None:
    """Return the signal of a component that checks answers and stays low although the total has risen, or None."""
    total, reward = history.marks.get("reward"), history.get("reward", 2 * ROLL)
    if total is None or reward is None:
        return None
    trend, _ = _trend(reward, history.sums.get("reward") or Sums())
    if not _has_risen(total) and trend[-1] < SIGNIFICANT_ERRORS:
        return None
    waiting = unproven(history)
    parts = [part for part in history.config.components if part.weight > 0 and part not in waiting]
    heaviest = sorted(parts, key=lambda part: -part.weight)[:1]
    for part in [part for part in parts if part.checks] or heaviest:
        if part.high is None or part.low is None:
            continue
        trendless = _steps_without_trend(history, part.metric, part.high - part.low)
        # Switches to harder prompts hide a rise between them.
        if trendless is None or slope_errors(without_falls(part, history.columns[part.metric])) > SIGNIFICANT_ERRORS:
            continue
        level = float(history.columns[part.metric].value[-ROLL:].mean())
        if part.low < level < (part.low + part.high) / 2:
            return Signal(trendless.at, trendless.value, {**named(part), "now": significant(level)})
    return None


def _has_risen(mark: Mark) -> bool:
    return mark.best - mark.start > 3 * SIGNIFICANT_ERRORS * max(mark.noise, 1e-12) * math.sqrt(2 / ROLL)


def _component_failing(history: History) -> Signal | None:
    shares = []
    for part in history.config.components:
        share = rolled_early(history.get(f"rewards/{part.name}/failed"), 10, 5)
        shares.append(share and share.with_fields(**named(part)))
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


def _components(history: History) -> Signal | None:
    columns = [
        (part, column) for part in history.config.components if (column := history.get(part.metric)) and part.weight
    ]
    length = min((len(column) for _, column in columns), default=0)
    if _falls_by_design(history):  # then a fall of what checks answers says nothing
        columns = [(part, column) for part, column in columns if not part.checks]
    moves = [move for lag in LAGS if length >= lag + 2 * ROLL and (move := _trade(columns, length, lag))]
    return max(moves, key=lambda signal: signal.value[-1]) if moves and len(columns) > 1 else None


def _recently(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return, for each generation, whether the condition has held in any of the newest STANDING generations, so that
    noise around a bound doesn't close a finding."""
    last = np.maximum.accumulate(np.where(holds, np.arange(len(holds)), -MAX_TRADE_GENERATIONS - 1))
    return np.arange(len(holds)) - last <= MAX_TRADE_GENERATIONS


def _trade(columns: list[tuple[Component, MetricHistory]], length: int, lag: int) -> Signal:
    """Compute the share of its range that a component lost within `lag` generations while another one rose. As long as
    the trade lasts, the loss counts from the component's best mean."""
    moves = [
        _moves(part, np.copysign(1.0, part.weight) * without_falls(part, column)[-length:], lag)
        for part, column in columns
    ]
    has_risen, losses = (np.array(rows) for rows in zip(*moves, strict=True))
    others = has_risen.sum(axis=0) - has_risen > 0
    traded = losses * others
    falling = int(np.argmax(traded[:, -1]))
    rising = next((i for i, gains in enumerate(has_risen) if gains[-1] and i != falling), 0)
    riser, faller = (f"“{columns[i][0].name}”" for i in (rising, falling))
    why = f"the policy may be gaming {riser}"
    if columns[rising][0].checks:
        why = f"{riser} checks answers, so check what {faller} rewards"
    loss = traded.max(axis=0)
    return Signal(columns[0][1].step[-len(loss) :], loss, {"rising": riser, "falling": faller, "why": why})


def without_falls(part: Component, column: MetricHistory) -> Floats:
    """Return a component's values without falls at once, as to harder prompts; gaming moves it little by little."""
    for _ in range(MAX_FALLS if part.weight > 0 and part.low is not None else 0):
        fall = jump(column)
        if fall is None or fall.size >= 0:
            fall = step_fall(column)
        if fall is None or fall.after - (part.low or 0.0) <= PARTIAL_SHARE * (fall.before - (part.low or 0.0)):
            break
        column = replace(column, value=column.value - fall.size * (column.step >= fall.step))
    return column.value


def _moves(part: Component, value: Floats, lag: int) -> tuple[NDArray[np.bool_], Floats]:
    """Return, for each generation, whether a component has risen, and the share of its range that it has lost."""
    means = rolling_mean(value, ROLL)
    changes, below = means[lag:] - means[:-lag], (np.maximum.accumulate(means) - means)[lag:]
    span = part.high - part.low if part.high is not None and part.low is not None else float(np.ptp(value))
    min_change = max(SIGNIFICANT_ERRORS * noise(value) * np.sqrt(2 / ROLL), 0.05 * span, 1e-12)
    return _recently(changes > min_change), np.where(_recently(changes < -min_change), below / max(span, 1e-12), 0.0)


SIGNALS: dict[str, SignalReader] = {
    "reward_stuck": _reward_stuck,
    "reward_falling": lambda history: highest(
        lost_gain(history, metric, history.config.low_to_high, history.config.lowest)
        for metric in dict.fromkeys(("reward", history.progress or "reward"))
    ),
    "reward_saturated": _reward_saturated,
    "component_low": _component_low,
    "component_falling": _component_falling,
    "components": _components,
    "component_stuck": _component_stuck,
    "component_failing": _component_failing,
    "reward_noise": _reward_noise,
}
