"""Curves of several runs, read from the outlines of their chunks, and each run's final values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from runs.engine.models import Run
from runs.engine.records import MetricChunk
from runs.insight.metrics.series import NO_STEP, READ_BATCH, TOKENS, Points, join, tails, thin
from workers.contract.run import evaluation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AXES = {"step": "Step", "tokens": "Tokens", "time": "Running time", "hours": "GPU-hours"}
MAX_POINTS = 1000
MAX_TOTAL_POINTS = 150_000
"""Maximum number of points in a response, over all curves."""
MIN_POINTS = 100
LAST_SHARE = 0.1
LOWER_IS_BETTER = ("grad_norm", "step_time", "frac_reward_zero_std", "completions/clipped_ratio")
Key = tuple[str, str]
"""Key of a series, as (run id, metric)."""


class Curve(TypedDict):
    x: list[float]
    y: list[float]


class FinalValues(TypedDict):
    last: float
    best: float | None
    """The highest or lowest value, whichever is better; None if neither is."""
    mean: float


class CurvesResponse(TypedDict):
    last: dict[str, int]
    """Run -> the last seq that its curves include."""
    series: dict[str, dict[str, Curve]]
    """Metric -> run -> curve, without runs that have nothing new."""


def curves(
    runs: Sequence[Run],
    metrics: Sequence[str],
    *,
    x: str = "step",
    points: int = 400,
    received: Mapping[str, int] | None = None,
) -> CurvesResponse:
    """Return the curves of runs, whose attempts must be prefetched. `received` maps a run to the last seq that the
    client has; runs with nothing newer are omitted."""
    last_seqs = {run.pk: run.last_seq for run in runs}
    updated_runs = [run for run in runs if (received or {}).get(run.pk) != run.last_seq]
    points = max(MIN_POINTS, min(points, MAX_POINTS, MAX_TOTAL_POINTS // max(1, len(updated_runs) * len(metrics))))
    names = [*metrics, TOKENS] if x == "tokens" else metrics
    stored_points = _stored_points([run.pk for run in updated_runs], names, points)
    series: dict[str, dict[str, Curve]] = {name: {} for name in metrics}
    for run in updated_runs:
        clock = _RunClock(run, stored_points.get((run.pk, TOKENS)))
        for name in metrics:
            if (outlined := stored_points.get((run.pk, name))) and (curve := _curve(thin(outlined, points), clock, x)):
                series[name][run.pk] = curve
    return {"last": last_seqs, "series": series}


def final_values(runs: Sequence[Run], metric: str) -> dict[str, FinalValues]:
    """Return each run's final values of a metric. Only the chunks of the last tenth are read in full."""
    ids = [run.pk for run in runs]
    unfolded = tails(ids, [metric])
    chunks: dict[str, list[tuple[int, int, Points]]] = {run_id: [] for run_id in ids}
    stored_chunks = MetricChunk.objects.filter(run__in=ids, metric=metric).order_by("run", "first_seq")
    for run_id, pk, count, data in stored_chunks.values_list("run_id", "pk", "points", "outline__data"):
        chunks[run_id].append((pk, count, _unpack_outline(data)))
    last_chunk_ids: dict[str, list[int]] = {run_id: [] for run_id in ids}
    tenth_sizes: dict[str, int] = {}
    for run_id, run_chunks in chunks.items():
        unfolded_count = len(unfolded.get((run_id, metric), ()))
        tenth_sizes[run_id] = missing_count = max(
            1, round(LAST_SHARE * (unfolded_count + sum(count for _, count, _ in run_chunks)))
        )
        missing_count -= unfolded_count
        for pk, count, outlined in reversed(run_chunks):
            if missing_count > 0 or not len(outlined):
                last_chunk_ids[run_id].append(pk)
            missing_count -= count
    last_chunks = MetricChunk.objects.filter(pk__in=[pk for pks in last_chunk_ids.values() for pk in pks])
    by_chunk = {pk: Points.unpack(data, count) for pk, count, data in last_chunks.values_list("pk", "points", "data")}
    finals_by_run: dict[str, FinalValues] = {}
    for run_id, run_chunks in chunks.items():
        parts = [by_chunk.get(pk, outlined) for pk, _, outlined in run_chunks]
        values = join([*parts, unfolded.get((run_id, metric), Points.of([]))]).value
        if len(values):
            last_values = values[-tenth_sizes[run_id] :]
            best_of = {"high": values.max, "low": values.min}.get(better_direction(metric))
            best_value = float(best_of()) if best_of else None
            finals_by_run[run_id] = {"last": float(values[-1]), "best": best_value, "mean": float(last_values.mean())}
    return finals_by_run


def _stored_points(ids: Sequence[str], metrics: Sequence[str], points: int) -> dict[Key, Points]:
    """Return each run's series, read from outlines, or from whole chunks if outlines are too coarse for `points`."""
    # The tails first: a fold between the reads moves rows into chunks, never back.
    unfolded = tails(ids, metrics)
    outlines: dict[Key, list[Points]] = {}
    hidden: dict[Key, int] = {}
    chunks = MetricChunk.objects.filter(run__in=ids, metric__in=metrics).order_by("run", "metric", "first_seq")
    for run_id, metric, count, data in chunks.values_list("run_id", "metric", "points", "outline__data"):
        outline_points = _unpack_outline(data)
        outlines.setdefault((run_id, metric), []).append(outline_points)
        hidden[run_id, metric] = hidden.get((run_id, metric), 0) + count - len(outline_points)
    coarse = {
        key
        for key, parts in outlines.items()
        if hidden[key] and (sum(map(len, parts)) < points or not all(map(len, parts)))
    }
    outlines |= _whole_chunks(coarse)
    return {key: join([*outlines.get(key, ()), unfolded.get(key, Points.of([]))]) for key in {**outlines, **unfolded}}


def _whole_chunks(keys: Iterable[Key]) -> dict[Key, list[Points]]:
    by_key: dict[Key, list[Points]] = {key: [] for key in keys}
    runs, metrics = {run for run, _ in by_key}, {metric for _, metric in by_key}
    chunks = MetricChunk.objects.filter(run__in=runs, metric__in=metrics).order_by("run", "metric", "first_seq")
    rows = chunks.values_list("run_id", "metric", "points", "data")
    for run_id, metric, count, data in rows.iterator(READ_BATCH) if by_key else ():
        if (run_id, metric) in by_key:
            by_key[run_id, metric].append(Points.unpack(data, count))
    return by_key


def _unpack_outline(data: "bytes | memoryview[int] | None") -> Points:
    return Points.unpack_rows([data] if data else [])


class _RunClock:
    """Converter from points to a run's progress: tokens, or time over all attempts without the gaps between them."""

    def __init__(self, run: Run, tokens: Points | None) -> None:
        import numpy as np

        self.counted = tokens
        attempts = [a for a in run.attempts.all() if a.first_seq is not None and a.started_at]
        self.attempts = sorted(attempts, key=lambda attempt: attempt.first_seq or 0)
        self.first = np.array([attempt.first_seq for attempt in self.attempts], dtype="<i8")
        self.gpus = max((len(attempt.gpus) for attempt in self.attempts), default=0)

    def tokens(self, points: Points) -> "NDArray[np.float64] | None":
        import numpy as np

        if self.counted is None:
            return None
        return np.round(np.interp(points.seq, self.counted.seq, self.counted.value, left=0.0))

    def time(self, points: Points, *, hours: bool) -> "NDArray[np.float64]":
        """Return the running time at each point in seconds, or in GPU-hours, which are counted from the lease."""
        import numpy as np

        progress = np.zeros(len(points))
        attempt_of = np.clip(np.searchsorted(self.first, points.seq, side="right") - 1, 0, None)
        elapsed = 0.0
        for number, attempt in enumerate(self.attempts):
            assert attempt.started_at is not None  # noqa: S101  # attempts without it are filtered out above
            in_attempt = attempt_of == number
            times, start = points.t[in_attempt], attempt.started_at.timestamp()
            if len(times):  # a host's clock that is behind must not make times negative
                start = min(start, float(times[0]))
            lease_lead_s = (attempt.started_at - (attempt.dispatched_at or attempt.started_at)).total_seconds()
            count, initial = (len(attempt.gpus) / 3600, max(0.0, lease_lead_s)) if hours else (1.0, 0.0)
            progress[in_attempt] = elapsed + count * (initial + times - start)
            duration = (attempt.ended_at - attempt.started_at).total_seconds() if attempt.ended_at else 0.0
            elapsed += count * (initial + max(0.0, duration))
        return np.round(progress, 4)


def _curve(points: Points, clock: _RunClock, x: str) -> Curve | None:
    x_values: NDArray[Any] | None
    if x == "tokens":
        x_values = clock.tokens(points)
    elif x == "time":
        x_values = clock.time(points, hours=False)
    elif x == "hours":
        x_values = clock.time(points, hours=True) if clock.gpus else None
    else:
        points = points.pick(points.step != NO_STEP)
        x_values = points.step
    return None if x_values is None else {"x": x_values.tolist(), "y": _round(points.value).tolist()}


def better_direction(metric: str) -> str:
    """Return which values of a metric are better: `high`, `low`, or "" if neither."""
    base_name = metric.removeprefix("eval_")
    if base_name in ("reward", evaluation.OTHER) or (base_name.startswith("rewards/") and base_name.endswith("/mean")):
        return "high"
    return "low" if base_name in LOWER_IS_BETTER else ""


def _round(values: "NDArray[np.float64]") -> "NDArray[np.float64]":
    """Round to five significant digits, which is more than a chart can show and halves the response's size."""
    import numpy as np

    size = np.abs(values)
    digits = 4 - np.floor(np.log10(np.where(size > 0, size, 1.0)))
    scale = 10.0 ** np.clip(digits, -300, 300)
    rounded: NDArray[np.float64] = np.round(values * scale) / scale
    return np.where(np.isfinite(rounded), rounded, values)
