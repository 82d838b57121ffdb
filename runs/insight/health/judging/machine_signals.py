"""Signals of the health rules about the machine, over whole steps so that the phases of a step cause no findings."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from controlplane.platform.templatetags.figures import duration, significant
from runs.insight.health.history import ROLL, Floats, History, MetricHistory, paced, rolling_median
from runs.insight.health.judging.signal import Signal, SignalReader, highest, rolled
from runs.insight.metrics.chart_catalogue import STEP_PARTS
from workers.contract.run.prompts import EXTRA_ROUNDS, EXTRA_TOKENS

WINDOW_S = 120.0
"""Minimum total duration of the whole steps that are averaged, in seconds."""
PHASE_S = 30.0
"""Minimum total duration if phases of a batch with several updates are averaged, in seconds."""
MIN_PAUSE_S = 60.0
"""Seconds without a step from which a gap counts as a pause. A save or a compilation may take almost as long."""
FIRST_PAUSE_S = 900.0
MIN_TRAIL_POINTS = 12
MIN_STEADY_SHARE = 0.2
"""Minimum share of the growth that must fall in the middle third, and in the last, for the growth to be steady."""
MIN_GROWTH = 0.03
FULL_CACHE = 95.0
PARTS = STEP_PARTS | {"update": "the update", "weight_sync": "sending weights to vLLM"}
FIRST_CHECKS = {
    "generation": "Generation takes longer, so check the lengths of completions, vLLM’s cache and waiting requests",
    "resampling": "Dynamic sampling generates again for groups without spread, so check the number of extra rounds "
    "and how many prompts still teach",
    "rewards": "Rewards take longer, so check what they wait for: their servers, their time limits, the host’s cores",
    "logps": "Log-probabilities take longer, so check the lengths of completions and the batch size",
    "update": "The update takes longer, so check the lengths of completions and the trainer’s GPUs",
    "weight_sync": "Sending weights to vLLM takes longer, so check the connection between the trainer and vLLM",
    "": "Check generation first",
}
"""Part of a step -> what to check first if it takes longer."""


@dataclass(frozen=True)
class _Steps:
    """The attempt's steps by the host's clock, without the evaluations between them."""

    step: NDArray[np.int64]
    start: Floats
    end: Floats


def _whole_steps(history: History) -> _Steps | None:
    column = history.get("loss", 2) or history.get("reward", 2)
    if column is None or not history.training_since:
        return None
    is_training = column.t >= history.training_since
    step, t = column.step[is_training], column.t[is_training]
    if len(t) < 2:
        return None
    evaluated = next((c.t for name, c in history.columns.items() if name.startswith("eval_")), np.empty(0))
    start = t[:-1].copy()
    for at in evaluated:
        start = np.where((t[:-1] <= at) & (at < t[1:]), at, start)
    return _Steps(step[1:], start, t[1:])


def _over_steps(column: MetricHistory, steps: _Steps, window_s: float = WINDOW_S) -> Signal | None:
    """Average the metric, at each step, over the preceding whole steps that together last at least `window_s`."""
    total = np.concatenate(([0.0], np.cumsum(column.value)))
    low, high = np.searchsorted(column.t, steps.start, "right"), np.searchsorted(column.t, steps.end, "right")
    sampled = (steps.start >= column.t[0]) & (steps.end <= column.t[-1] + WINDOW_S)
    low, high, at = low[sampled], high[sampled], steps.step[sampled]
    lasted = np.concatenate(([0.0], np.cumsum((steps.end - steps.start)[sampled])))
    sums = np.concatenate(([0.0], np.cumsum(total[high] - total[low])))
    counts = np.concatenate(([0], np.cumsum(high - low)))
    first = np.searchsorted(lasted, lasted[1:] - window_s, "right") - 1
    if window_s < WINDOW_S:
        first = np.minimum(first, np.arange(len(lasted) - 1) - 1)  # two steps have enough samples
    has_samples = (first >= 0) & (counts[1:] - counts[np.maximum(first, 0)] >= 5)
    if not has_samples.any():
        return None
    last = np.arange(1, len(lasted))[has_samples]
    first_index = first[has_samples]
    return Signal(at[has_samples], (sums[last] - sums[first_index]) / (counts[last] - counts[first_index]))


def _gpu_hot(history: History) -> Signal | None:
    signals = ((gpu, _of_metric(history, f"gpu/{gpu}/temperature_c")) for gpu in history.config.gpus)
    return highest(signal and signal.with_fields(gpu=str(gpu)) for gpu, signal in signals)


def _gpu_idle(history: History) -> Signal | None:
    """Return the utilization of the least used GPU in its busiest step of as many steps as a batch has updates, since
    vLLM's GPUs rest during all of a batch's updates but the first."""
    updates = max(1, int(history.config.updates))
    signals = []
    for gpu in history.config.gpus:
        name = f"gpu/{gpu}/util_percent"
        signal = _of_metric(history, name, PHASE_S) if updates > 1 else None
        signal = signal or _of_metric(history, name)  # a phase may have too few samples
        if signal is not None and len(signal.value) >= updates:
            busiest = np.lib.stride_tricks.sliding_window_view(signal.value, updates).max(axis=1)
            signals.append(Signal(signal.at[updates - 1 :], busiest, {"gpu": str(gpu)}))
    return min(reversed(signals), key=lambda signal: float(signal.value[-1]), default=None)


def _of_metric(history: History, name: str, window_s: float = WINDOW_S) -> Signal | None:
    column, steps = history.get(name, 10), _whole_steps(history)
    return _over_steps(column, steps, window_s) if column is not None and steps is not None else None


def _throughput(history: History) -> Signal | None:
    """Compute the slowdown relative to the start or to the preceding window, whichever was faster."""
    pace, newest = paced(_all_tokens(history)), 40
    if pace is None or len(pace) < 2 * newest:
        return None
    rate, seconds = float(np.median(pace.value[:-newest])), float(np.median(pace.t[:-newest]))
    if history.pace is not None:
        rate, seconds = max(rate, history.pace.rate), min(seconds, history.pace.seconds)
    slower = np.minimum(rate / rolling_median(pace.value, ROLL), rolling_median(pace.t, ROLL) / seconds)
    current_seconds = float(np.median(pace.t[-ROLL:]))
    fields = {"now": significant(current_seconds), "usual": significant(seconds)}
    return Signal(pace.step[ROLL - 1 :], slower, {**fields, **_slow_part(history)})


def _all_tokens(history: History) -> MetricHistory | None:
    """Return the cumulative tokens, with those that dynamic sampling has generated in extra rounds. If only the rounds
    are known, each counts as a whole batch."""
    tokens, extra, rounds = (history.get(name) for name in ("num_tokens", EXTRA_TOKENS, EXTRA_ROUNDS))
    if tokens is None or len(tokens) < 2:
        return tokens
    if extra is None and rounds is not None:
        extra = replace(rounds, value=rounds.value * float(np.median(np.diff(tokens.value))))
    if extra is None:
        return tokens
    at = np.searchsorted(extra.step, tokens.step, "right")
    return replace(tokens, value=tokens.value + np.concatenate(([0.0], np.cumsum(extra.value)))[at])


def _slow_part(history: History) -> dict[str, str]:
    """Name the part of a step that has grown most, if any is known to have grown, and what to check first."""
    increases: list[tuple[float, str, str]] = []
    for part, name in PARTS.items():
        column = history.get(f"time/{part}_s", 3 * ROLL)
        if column is not None:
            medians = rolling_median(column.value, ROLL)
            now, before = float(medians[-1]), float(medians[: -2 * ROLL].min())
            increases.append((now - before, part, f"{name}: {significant(now)} s instead of {significant(before)} s"))
    growth, part, change = max(increases, default=(0.0, "", ""))
    if growth <= 0:
        return {"part": "", "check": FIRST_CHECKS[""]}
    is_resampling = part == "generation" and history.get(EXTRA_ROUNDS) is not None
    return {"part": f", mostly in {change}", "check": FIRST_CHECKS["resampling" if is_resampling else part]}


def _slow_rewards(history: History) -> Signal | None:
    parts = [column for part in PARTS if (column := history.get(f"time/{part}_s", 10)) is not None]
    rewards = rolled(history.get("time/rewards_s"), rolling_median, ROLL)
    if rewards is None or len(parts) < 2:
        return None
    step_seconds = sum(float(np.median(column.value[-ROLL:])) for column in parts)
    fields = {"seconds": significant(float(rewards.value[-1])), "whole": significant(step_seconds)}
    return Signal(rewards.at, rewards.value / max(step_seconds, 1e-9), fields)


def _stalled(history: History) -> Signal | None:
    column = history.get("loss", 5)
    if column is None or not history.quiet_s:
        return None
    is_training = column.t >= history.training_since
    gaps, steps = np.diff(column.t[is_training]), column.step[is_training]
    longest_s = max(float(gaps.max()) if len(gaps) else 0.0, MIN_PAUSE_S)
    if _is_pause_after(history, int(column.step[-1])) and not any(
        _is_pause_after(history, int(step)) for step in steps[:-1]
    ):
        longest_s = max(longest_s, FIRST_PAUSE_S)
    hang = history.hang and f" {history.hang}"
    fields = {"quiet": duration(history.quiet_s), "longest": duration(longest_s), "who": hang}
    return Signal(column.step[-1:], np.array([history.quiet_s / longest_s]), fields)


def _is_pause_after(history: History, step: int) -> bool:
    intervals = (history.config.eval_every, history.config.save_every)
    return any(interval and step % interval == 0 for interval in intervals)


def _gpu_memory(history: History) -> Signal | None:
    signals = ((gpu, _creep(history, f"gpu/{gpu}/memory_mib")) for gpu in history.config.gpus)
    return highest(signal and signal.with_fields(gpu=str(gpu)) for gpu, signal in signals)


def _creep(history: History, name: str) -> Signal | None:
    trail, capacity = history.trails.get(name) or [], history.capacity.get(name, 0.0)
    if len(trail) < MIN_TRAIL_POINTS or not capacity:
        return None
    mib = np.array([value for _, value in trail])
    # Growth may have begun at any time, if there are enough points since then.
    parts = [mib[start:] for start in range(0, len(mib) - MIN_TRAIL_POINTS + 1, 3)]
    share, first = max((_used_up(part, capacity), float(np.median(part[:3]))) for part in parts)
    now = float(np.median(mib[-3:]))
    fields = {"start": f"{first / 1024:.0f}", "now": f"{now / 1024:.0f}", "capacity": f"{capacity / 1024:.0f}"}
    return Signal(np.array([history.step]), np.array([share]), fields)


def _used_up(mib: Floats, capacity: float) -> float:
    """Return the share of the initially free memory that was used up by the end of the series `mib`, or 0 unless usage
    grew from each third to the next."""
    first, last = float(np.median(mib[:3])), float(np.median(mib[-3:]))
    early, middle, late = (float(part.mean()) for part in np.array_split(mib, 3))
    least = MIN_STEADY_SHARE * max(last - first, MIN_GROWTH * capacity)
    return (last - first) / max(capacity - first, 1.0) if min(middle - early, late - middle) > least else 0.0


def _vllm_full(history: History) -> Signal | None:
    cache, steps = history.get("vllm/kv_cache_percent", 10), _whole_steps(history)
    waiting, running = history.get("vllm/requests_waiting", 10), history.get("vllm/requests_running", 10)
    if cache is None or waiting is None or running is None or steps is None:
        return None
    if not len(cache) == len(waiting) == len(running):
        return None
    is_busy = running.value > 0
    is_full = (cache.value > FULL_CACHE) & (waiting.value > 0)
    column = MetricHistory(cache.step[is_busy], cache.t[is_busy], is_full[is_busy].astype(float))
    return _over_steps(column, steps) if is_busy.any() else None


def _straggler(history: History) -> Signal | None:
    by_gpu = {}
    for gpu in history.config.ranks:
        signal = _of_metric(history, f"gpu/{gpu}/power_w")
        if signal is None:
            return None
        by_gpu[gpu] = signal
    if len(by_gpu) < 2 or len({len(signal.value) for signal in by_gpu.values()}) > 1:
        return None
    power = np.array([signal.value for signal in by_gpu.values()])
    typical = np.median(power, axis=0) if len(by_gpu) > 2 else power.max(axis=0)
    gaps = np.abs(power - typical) / np.maximum(typical, 1.0)
    outlier = int(np.argmax(gaps[:, -1]))
    fields = {"gpu": str(list(by_gpu)[outlier]), "watts": f"{power[outlier, -1]:.0f}", "typical": f"{typical[-1]:.0f}"}
    return Signal(next(iter(by_gpu.values())).at, gaps.max(axis=0), fields)


SIGNALS: dict[str, SignalReader] = {
    "throughput": _throughput,
    "slow_rewards": _slow_rewards,
    "stalled": _stalled,
    "gpu_idle": _gpu_idle,
    "gpu_hot": _gpu_hot,
    "gpu_memory": _gpu_memory,
    "host_memory": lambda history: _creep(history, "host/run_memory_mib"),
    "vllm_full": _vllm_full,
    "straggler": _straggler,
}
