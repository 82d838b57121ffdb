"""Shapes of a series: whether it rose little by little, changed at once, or has been falling from a peak."""

from dataclasses import dataclass

import numpy as np

from runs.insight.health.history import Floats, MetricHistory, noise, rolling_mean

SIDE = 5
"""Number of values on each side of a jump that are averaged."""
STEP_SIDE = 20
"""Number of values on each side of a fall at once in noise."""
STEP_ADVANTAGE = 8.0
"""Difference between what a step and a line explain, in variances of the rest, from which it was a step."""
MAX_JUMP_VALUES = 2
"""Number of values within which a jump takes place."""
MIN_TREND = 6
"""Minimum number of values of a trend."""
MIN_CHANGE = 0.3
"""Share of the largest value from which a difference counts as a change."""
GRADUAL_VALUES, SURELY_GRADUAL_VALUES = 4, 7
"""Minimum number of values between two levels for a gradual change: without a large jump, and with one."""
AT_ONCE = 0.6
"""Share of a change from which a jump explains it."""


@dataclass(frozen=True)
class Jump:
    step: int
    """The first step at the new level."""
    index: int
    before: float
    after: float

    @property
    def size(self) -> float:
        return self.after - self.before


def jump(column: MetricHistory) -> Jump | None:
    """Return the largest change of the level that took place at once, far beyond the series' noise, or None."""
    value = column.value
    if len(value) < 2 * SIDE + MAX_JUMP_VALUES:
        return None
    means = rolling_mean(value, SIDE)
    index = int(np.argmax(np.abs(means[SIDE:] - means[:-SIDE]))) + SIDE
    before, after = float(value[max(0, index - 2 * SIDE) : index].mean()), float(value[index : index + 2 * SIDE].mean())
    size = after - before
    error = max(noise(value[:index]), noise(value[index:])) / np.sqrt(SIDE)
    nearest = (
        value[max(0, index - MAX_JUMP_VALUES) : index].mean() - before,
        value[index : index + MAX_JUMP_VALUES].mean() - after,
    )
    if abs(size) <= 4 * error or max(map(abs, nearest)) > max(abs(size) / 3, 2 * error):
        return None
    return Jump(int(column.step[index]), index, before, after)


def step_fall(column: MetricHistory) -> Jump | None:
    """Return the largest fall that a step explains better than a line, over a longer time than `jump` needs, so that it
    is found in noise too, or None."""
    value = column.value
    if len(value) < 2 * STEP_SIDE:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(value, 2 * STEP_SIDE)
    before, after = windows[:, :STEP_SIDE].mean(axis=1), windows[:, STEP_SIDE:].mean(axis=1)
    x = np.arange(2 * STEP_SIDE) - STEP_SIDE + 0.5
    of_line = (windows @ x) ** 2 / (x @ x)
    of_step = (after - before) ** 2 * STEP_SIDE / 2
    rest = ((windows - windows.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) - of_step
    advantage = np.where(after < before, (of_step - of_line) / np.maximum(rest / (2 * STEP_SIDE - 2), 1e-12), 0.0)
    best = int(np.argmax(advantage))
    if advantage[best] < STEP_ADVANTAGE:
        return None
    index = best + STEP_SIDE
    return Jump(int(column.step[index]), index, float(before[best]), float(after[best]))


def is_gradual(column: MetricHistory, smooth: Floats, start: float) -> bool:
    """Return whether a metric, given with its rolling median, moved from `start` to its level now little by little."""
    size = float(np.median(smooth[-SIDE:])) - start
    if abs(size) <= max(4 * noise(smooth), MIN_CHANGE * float(np.abs(smooth).max())):
        return False
    share = (smooth - start) / size
    on_the_way = int(((share > 0.2) & (share < 0.8)).sum())
    if on_the_way >= SURELY_GRADUAL_VALUES:
        return True
    change = jump(column)
    return on_the_way >= GRADUAL_VALUES and (change is None or abs(change.size) < AT_ONCE * abs(size))


def slope_errors(value: Floats, least_noise: float = 0.0) -> float:
    """Return the slope of a least-squares line through the values, in standard errors, or 0 for fewer than
    MIN_TREND values. The residuals of a few values tell little about their noise, so there are fewer errors, as many as
    are equally improbable with many values. `least_noise`: the noise that the values have at least."""
    n = len(value)
    if n < MIN_TREND:
        return 0.0
    x = np.arange(n) - (n - 1) / 2
    slope = float((x * value).sum() / (x * x).sum())
    residual = value - value.mean() - slope * x
    deviation = max(float(np.sqrt((residual * residual).sum() / (n - 2))), least_noise)
    errors = slope / max(deviation / float(np.sqrt((x * x).sum())), 1e-12)
    freedom = n - 2
    # Wallace's approximation of Student's t by a normal variable is inverted here in its simplest form.
    return float(errors * (1 - 1 / (4 * freedom)) / np.sqrt(1 + errors * errors / (2 * freedom)))


def correlation(first: Floats, second: Floats) -> float:
    """Return the correlation of two series of equal length, or 0 if one of them is constant."""
    if min(first.std(), second.std()) < 1e-12:
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


def without_decays(value: Floats, window: int, share: float) -> Floats:
    """Set values to 0 that have fallen below a share of the peak within the window, as after a passing disturbance."""
    if not len(value):
        return value
    padded = np.concatenate((np.full(window - 1, value[0]), value))
    peaks = np.lib.stride_tricks.sliding_window_view(padded, window).max(axis=1)
    settled: Floats = np.where(value < share * peaks, 0.0, value)
    return settled
