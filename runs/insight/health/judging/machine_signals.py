"""Signals of the health rules about the machine, over whole steps so that the phases of a step cause no findings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controlplane.platform.templatetags.figures import duration, significant
from runs.insight.health.history import ROLL, Floats, History, MetricHistory, paced, rolling_median
from runs.insight.health.judging.signal import Of, Signal, highest, rolled
from runs.insight.metrics.chart_catalogue import STEP_PARTS

WINDOW_S = 120.0
"""Minimum total duration of the whole steps that are averaged, in seconds."""
MIN_PAUSE_S = 60.0
"""Minimum number of seconds without a step that counts as a pause, since a save or a compilation may take this long."""
FIRST_PAUSE_S = 900.0
MIN_TRAIL_POINTS = 12
MIN_STEADY_SHARE = 0.2
"""Minimum share of the growth in the middle and in the last third, each, for the growth to be steady."""
MIN_GROWTH = 0.03
FULL_CACHE = 95.0
PARTS = STEP_PARTS | {"update": "the update"}


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


def _over_steps(column: MetricHistory, steps: _Steps) -> Signal | None:
    """Average the metric, at each step, over the preceding whole steps that together last at least WINDOW_S."""
    total = np.concatenate(([0.0], np.cumsum(column.value)))
    low, high = np.searchsorted(column.t, steps.start, "right"), np.searchsorted(column.t, steps.end, "right")
    sampled = (steps.start >= column.t[0]) & (steps.end <= column.t[-1] + WINDOW_S)
    low, high, at = low[sampled], high[sampled], steps.step[sampled]
    lasted = np.concatenate(([0.0], np.cumsum((steps.end - steps.start)[sampled])))
    sums = np.concatenate(([0.0], np.cumsum(total[high] - total[low])))
    counts = np.concatenate(([0], np.cumsum(high - low)))
    first = np.searchsorted(lasted, lasted[1:] - WINDOW_S, "right") - 1
    has_samples = (first >= 0) & (counts[1:] - counts[np.maximum(first, 0)] >= 5)
    if not has_samples.any():
        return None
    last = np.arange(1, len(lasted))[has_samples]
    first_index = first[has_samples]
    return Signal(at[has_samples], (sums[last] - sums[first_index]) / (counts[last] - counts[first_index]))


def _of_gpus(history: History, name: str, *, above: bool) -> Signal | None:
    """Return the signal of the attempt's GPU with the highest (or lowest) mean over whole steps."""
    signals = [
        signal.with_fields(gpu=str(gpu))
        for gpu in history.config.gpus
        if (signal := _of_metric(history, f"gpu/{gpu}/{name}")) is not None
    ]
    if above:
        return highest(signals)
    return min(reversed(signals), key=lambda signal: float(signal.value[-1]), default=None)


def _of_metric(history: History, name: str) -> Signal | None:
    column, steps = history.get(name, 10), _whole_steps(history)
    return _over_steps(column, steps) if column is not None and steps is not None else None


def _throughput(history: History) -> Signal | None:
    """Compute the slowdown relative to the start or to the preceding window, whichever was faster."""
    pace, newest = paced(history.get("num_tokens")), 40
    if pace is None or len(pace) < 2 * newest:
        return None
    rate, seconds = float(np.median(pace.value[:-newest])), float(np.median(pace.t[:-newest]))
    if history.pace is not None:
        rate, seconds = max(rate, history.pace.rate), min(seconds, history.pace.seconds)
    slower = np.minimum(rate / rolling_median(pace.value, ROLL), rolling_median(pace.t, ROLL) / seconds)
    current_seconds = float(np.median(pace.t[-ROLL:]))
    fields = {"now": significant(current_seconds), "usual": significant(seconds), "part": _slow_part(history)}
    return Signal(pace.step[ROLL - 1 :], slower, fields)


def _slow_part(history: History) -> str:
    """Return a sentence about the part of a step that has grown most, or "" if none has or the parts are unknown."""
    increases: list[tuple[float, str]] = []
    for part, name in PARTS.items():
        column = history.get(f"time/{part}_s", 3 * ROLL)
        if column is not None:
            now, before = float(np.median(column.value[-ROLL:])), float(np.median(column.value[: -2 * ROLL]))
            change = f"{significant(now)} s instead of {significant(before)} s"
            increases.append((now - before, f"Most of the increase is in {name}: {change}."))
    return max(increases)[1] if increases and max(increases)[0] > 0 else ""


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
    first, last = float(np.median(mib[:3])), float(np.median(mib[-3:]))
    early, middle, late = (float(part.mean()) for part in np.array_split(mib, 3))
    growth = last - first
    is_steady = (
        min(middle - early, late - middle) > MIN_STEADY_SHARE * growth > MIN_STEADY_SHARE * MIN_GROWTH * capacity
    )
    share = growth / max(capacity - first, 1.0) if is_steady else 0.0
    fields = {"start": f"{first / 1024:.0f}", "now": f"{last / 1024:.0f}", "capacity": f"{capacity / 1024:.0f}"}
    return Signal(np.array([history.step]), np.array([share]), fields)


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


OF: dict[str, Of] = {
    "throughput": _throughput,
    "slow_rewards": _slow_rewards,
    "stalled": _stalled,
    "gpu_idle": lambda history: _of_gpus(history, "util_percent", above=False),
    "gpu_hot": lambda history: _of_gpus(history, "temperature_c", above=True),
    "gpu_memory": _gpu_memory,
    "host_memory": lambda history: _creep(history, "host/run_memory_mib"),
    "vllm_full": _vllm_full,
    "straggler": _straggler,
}
