"""Signals of the health rules about the policy's updates."""

import numpy as np

from controlplane.platform.templatetags.figures import significant
from runs.insight.health.history import GAP, ROLL, WEIGHT, Floats, History, MetricHistory, rolling_mean, rolling_median
from runs.insight.health.judging.reward_signals import has_learned
from runs.insight.health.judging.shapes import is_gradual, jump, without_decays
from runs.insight.health.judging.signal import Signal, SignalReader, highest, median, rolled, rolled_early
from workers.contract.run.overlapping import STALENESS

MIN_ENTROPY = 0.2
"""Lower bound of the usual entropy in nats, since multiples of smaller values mean little."""
NOISY_ENTROPY = 0.5
"""Entropy in nats above which a rise is judged."""


CHANGED_ENTROPY = 0.2
"""Entropy in nats above which a fall is no collapse yet, however far it fell."""
KL_WINDOW = 30
KL_SHARE = 0.7
"""Share of the peak within KL_WINDOW steps below which the KL is recovering, as after a resume."""
TOKEN_GAP = 0.1
"""Gap in log-probabilities from which tokens may differ; a dtype alone makes a smaller one."""
MIN_GROWTH = 3.0
"""Growth of a mismatch relative to its start above which it is growing."""
FLAT_GENERATIONS = 60
SCHEDULE_END = 0.01
"""Share of a run's planned steps at its end in which a schedule may have reached 0."""


def _other_tokens(history: History) -> Signal | None:
    """Compute how far, at each batch's first update, the trainer's probabilities are from those of the samples,
    although both should be the same policy's. A gap counts if it has been there from the start and has not grown."""
    ratio = _distance(rolled_early(history.first_updates("mean_ratio"), 10, 3), 1.0)
    signals = [ratio and ratio.with_fields(what=f"the mean ratio is {significant(1 + _signed(history))} instead of 1")]
    gap, first = rolled(history.get(GAP), rolling_median, 10), history.firsts.get(GAP, 0.0)
    if gap is not None and STALENESS not in history.columns:
        is_old = (first > TOKEN_GAP) & (gap.value < MIN_GROWTH * first)
        was_there = np.where(is_old, np.minimum(first, gap.value), 0.0)
        what = f"log-probabilities differ by {significant(float(gap.value[-1]))} nats per token"
        signals.append(Signal(gap.at, was_there, {"what": what}))
    return highest(signals)


def _signed(history: History) -> float:
    column = history.first_updates("mean_ratio")
    return 0.0 if column is None else float(column.value[-10:].mean()) - 1.0


def _weights_apart(history: History) -> Signal | None:
    """Compute the growth of the mismatch since the start, if it grew little by little and isn't due to staleness."""
    gap, first = rolled(history.get(GAP), rolling_median, 10), history.firsts.get(GAP)
    if gap is None or first is None or STALENESS in history.columns:
        return None
    start = min(first, float(gap.value.min()))
    growth = np.where(gap.value > MIN_GROWTH * start, gap.value - start, 0.0)
    if not is_gradual(history.columns[GAP], gap.value, start):
        growth = np.zeros(len(growth))
    return Signal(gap.at, growth, {"start": significant(start), "now": significant(float(gap.value[-1]))})


def _kl_flat(history: History) -> Signal | None:
    """Compute the KL while it grows and the reward has not risen."""
    kl, reward, first = rolled(history.get("kl"), rolling_median, 10), history.get("reward"), history.firsts.get("kl")
    if kl is None or reward is None or first is None:
        return None
    is_growing = kl.value > MIN_GROWTH * min(first, float(kl.value.min()))
    is_flat = len(reward) >= FLAT_GENERATIONS and not has_learned(history, "reward") and not history.solved
    gap = " The gap to vLLM has not grown, so look at the rewards first." if history.get(GAP) is not None else ""
    return Signal(kl.at, np.where(is_growing & is_flat, kl.value, 0.0), {"gap": gap})


def _entropy_fall(history: History) -> Signal | None:
    entropy, mark = rolled(history.get("entropy"), rolling_median, 10), history.marks.get("entropy")
    if entropy is None or mark is None:
        return None
    share = np.where(entropy.value < CHANGED_ENTROPY, entropy.value / max(mark.start, 1e-9), 1.0)
    fields = {"now": significant(float(entropy.value[-1])), "usual": significant(mark.start)}
    return Signal(entropy.at, share, fields)


def _kl(history: History) -> Signal | None:
    kl = rolled(history.get("kl"), rolling_median, 10)
    fields = {"now": significant(float(kl.value[-1]))} if kl else {}
    return kl and Signal(kl.at, without_decays(kl.value, KL_WINDOW, KL_SHARE), fields)


def _stale(metric: str) -> SignalReader:
    """Return a function for the mismatch, with the cause that its course over time suggests."""

    def of(history: History) -> Signal | None:
        column = history.get(metric)
        signal = rolled(column, rolling_median, 10)
        if signal is None or column is None:
            return None
        return signal.with_fields(why=_course(history, column, signal.value))

    return of


def _course(history: History, column: MetricHistory, value: Floats) -> str:
    if STALENESS in history.columns:
        return "batches are generated ahead, by older weights"
    if is_gradual(column, value, float(value[0])):
        return "it grew little by little, so new weights or the adapter may not reach vLLM"
    if (change := jump(column)) is not None:
        return f"it began at once at step {change.step:,}, so check the weight updates and settings of vLLM since then"
    return "it has been so from the start, so the dtype, the tokenizer or the sampling settings differ"


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
    """Compute the largest of ten learning rates, since schedules begin and end with a step at 0. In the last steps of a
    long run a schedule's rates are tiny by design."""
    column, window = history.get("learning_rate"), 10
    if column is None or len(column) < window:
        return None
    largest = np.lib.stride_tricks.sliding_window_view(column.value, window).max(axis=1)
    is_end = column.step[window - 1 :] > (1 - SCHEDULE_END) * (history.config.max_steps or np.inf)
    return Signal(column.step[window - 1 :], np.where(is_end, float(column.value.max()), largest))


SIGNALS: dict[str, SignalReader] = {
    "other_tokens": _other_tokens,
    "weights_apart": _weights_apart,
    "kl_flat": _kl_flat,
    "kl": _kl,
    "clip": _clip,
    "ratio": lambda history: _distance(rolled(history.updates("mean_ratio"), rolling_mean, ROLL), 1.0),
    "entropy": median("entropy"),
    "entropy_fall": _entropy_fall,
    "entropy_rise": _entropy_rise,
    "entropy_high": median("entropy"),
    "stale": _stale(GAP),
    "masked": median("sampling/share_masked"),
    "stale_mean": _stale(WEIGHT),
    "stale_least": median("sampling/importance_sampling_ratio/min"),
    "grad_spikes": _grad_spikes,
    "grad_high": _grad_high,
    "grad_zero": median("grad_norm", window=ROLL),
    "lr_zero": _lr_zero,
    "loss": lambda history: _distance(rolled(history.get("loss"), rolling_median, 10), 0.0),
    "not_finite": _not_finite,
}
