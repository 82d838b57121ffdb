"""Signals of the health rules about the policy's updates."""

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.history import ROLL, History, MetricHistory, rolling_mean, rolling_median
from runs.insight.health.judging.signal import Of, Signal, median, rolled

MIN_ENTROPY = 0.2
"""Lower bound of the usual entropy in nats, since multiples of smaller values mean little."""
NOISY_ENTROPY = 0.5
"""Entropy in nats above which a rise is judged."""


def _clip(history: History) -> Signal | None:
    column = history.updates("clip_ratio/region_mean") or history.updates("cispo_clip_ratio")
    return rolled(column, rolling_mean, ROLL)


def _distance(signal: Signal | None, center: float) -> Signal | None:
    return signal and Signal(signal.at, np.abs(signal.value - center))


def _entropy_rise(history: History) -> Signal | None:
    entropy, mark = rolled(history.get("entropy"), rolling_median, 10), history.marks.get("entropy")
    if entropy is None or mark is None:
        return None
    usual_entropy = max(min(mark.start, mark.low), MIN_ENTROPY)
    rise = np.where(entropy.value >= NOISY_ENTROPY, entropy.value / usual_entropy, 0.0)
    return Signal(entropy.at, rise, {"now": significant(float(entropy.value[-1])), "usual": significant(usual_entropy)})


def _grad_spikes(history: History) -> Signal | None:
    before, column = 50, history.get("grad_norm", 60)
    if column is None:
        return None
    usual_norm = rolling_median(column.value, before)[:-1]
    later_norms = column.value[before:]
    spike = (later_norms > 10 * usual_norm) & (later_norms > history.config.max_grad_norm)
    counts = np.convolve(spike, np.ones(50))[: len(spike)]
    newest = later_norms[-50:][spike[-50:]]
    largest = float(newest.max()) if len(newest) else 0.0
    return Signal(column.step[before:], counts, {"largest": significant(largest)})


def _grad_high(history: History) -> Signal | None:
    grad = rolled(history.get("grad_norm"), rolling_median, ROLL)
    return grad and Signal(grad.at, grad.value, {"clip": f"{history.config.max_grad_norm:g}"})


def _not_finite(history: History) -> Signal | None:
    """Count the steps that logged a learning rate but no loss or no gradient norm, although the run has logged both."""
    learning_rate = history.get("learning_rate", ROLL)
    if learning_rate is None:
        return None
    is_missing = np.zeros(len(learning_rate), dtype=bool)
    for name in ("loss", "grad_norm"):
        column: MetricHistory | None = history.columns.get(name)
        if column is not None:
            is_missing |= ~np.isin(learning_rate.step, column.step)
        elif name in history.reported:
            is_missing[:] = True
    return Signal(learning_rate.step[ROLL - 1 :], np.round(rolling_mean(is_missing.astype(float), ROLL) * ROLL))


def _lr_zero(history: History) -> Signal | None:
    """Compute the largest of ten learning rates, since schedules begin and end with a step at 0."""
    column, window = history.get("learning_rate"), 10
    if column is None or len(column) < window:
        return None
    largest = np.lib.stride_tricks.sliding_window_view(column.value, window).max(axis=1)
    return Signal(column.step[window - 1 :], largest)


OF: dict[str, Of] = {
    "kl": median("kl"),
    "clip": _clip,
    "ratio": lambda history: _distance(rolled(history.updates("mean_ratio"), rolling_mean, ROLL), 1.0),
    "entropy": median("entropy"),
    "entropy_rise": _entropy_rise,
    "entropy_high": median("entropy"),
    "stale": median("sampling/sampling_logp_difference/mean"),
    "masked": median("sampling/share_masked"),
    "stale_mean": median("sampling/importance_sampling_ratio/mean"),
    "stale_least": median("sampling/importance_sampling_ratio/min"),
    "grad_spikes": _grad_spikes,
    "grad_high": _grad_high,
    "grad_zero": median("grad_norm", window=ROLL),
    "lr_zero": _lr_zero,
    "loss": lambda history: _distance(rolled(history.get("loss"), rolling_median, 10), 0.0),
    "not_finite": _not_finite,
}
