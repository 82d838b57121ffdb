"""The points of charts, read from packed chunks and raw rows and downsampled so that spikes stay visible.

A long history is read as the outlines of its chunks, and as whole chunks only where outlines are too coarse for the
request. So no request reads more than about a hundred chunks per metric, however long the run is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

import msgspec
from django.db.models import F, Sum, TextField
from django.db.models.functions import Cast

from runs.engine.models import Run
from runs.engine.records import MetricChunk, MetricRow

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_STEP = -1
_ROW = [("seq", "<i8"), ("step", "<i4"), ("t", "<f8"), ("value", "<f8")]
ROW_BYTES = 28
KEPT_EXTREMES = 20
"""Maximum number of highest points, and of lowest points, that a downsampled series keeps in any case."""
STRETCHES = 32
"""Number of stretches per chunk whose lowest and highest points form the outline."""
TOKENS = "num_tokens"
READ_BATCH = 500
_VALUES = msgspec.json.Decoder(dict[str, float | None])


class Series(TypedDict):
    seq: list[int]
    step: list[int | None]
    t: list[float]
    value: list[float]
    tokens: NotRequired[list[float]]


class SeriesResponse(TypedDict):
    last: int
    series: dict[str, Series]


class Metric(TypedDict):
    name: str
    kind: str
    """Kind of the metric's lines: train, system or vllm."""
    points: int


@dataclass(frozen=True)
class Window:
    """A range of the x axis; None leaves a side open."""

    x: str = ""
    """Unit of the x axis: step, tokens or time; "" means step."""
    low: float | None = None
    high: float | None = None

    @property
    def whole(self) -> bool:
        return self.low is None and self.high is None


WHOLE_RUN = Window()


@dataclass(frozen=True)
class Points:
    """Columns of equal length, ordered by seq."""

    seq: "NDArray[np.int64]"
    step: "NDArray[np.int32]"
    t: "NDArray[np.float64]"
    value: "NDArray[np.float64]"

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def columns(self) -> "tuple[NDArray[Any], ...]":
        return self.seq, self.step, self.t, self.value

    @classmethod
    def of(cls, points: Sequence[tuple[int, int | None, float, float]]) -> "Points":
        import numpy as np

        return cls(
            np.array([p[0] for p in points], dtype="<i8"),
            np.array([NO_STEP if p[1] is None else p[1] for p in points], dtype="<i4"),
            np.array([p[2] for p in points], dtype="<f8"),
            np.array([p[3] for p in points], dtype="<f8"),
        )

    @classmethod
    def unpack(cls, data: "bytes | memoryview[int]", points: int) -> "Points":
        import numpy as np

        raw = bytes(data)
        offsets = [0, 8 * points, 12 * points, 20 * points]
        kinds = ("<i8", "<i4", "<f8", "<f8")
        return cls(*(np.frombuffer(raw, kind, points, start) for kind, start in zip(kinds, offsets, strict=True)))

    def pack(self) -> bytes:
        return b"".join(column.tobytes() for column in self.columns)

    @classmethod
    def unpack_rows(cls, parts: "Sequence[bytes | memoryview[int]]") -> "Points":
        """Unpack the results of several `pack_rows` at once: unlike columns, rows can be concatenated as bytes."""
        import numpy as np

        rows = np.frombuffer(b"".join(parts), np.dtype(_ROW))
        return cls(*(np.ascontiguousarray(rows[name]) for name, _ in _ROW))

    def pack_rows(self) -> bytes:
        import numpy as np

        rows = np.empty(len(self), np.dtype(_ROW))
        for name, _ in _ROW:
            rows[name] = getattr(self, name)
        return rows.tobytes()

    def pick(self, index: "NDArray[np.bool_] | NDArray[np.int64] | slice") -> "Points":
        return Points(*(column[index] for column in self.columns))


def join(parts: Iterable[Points]) -> Points:
    """Join parts, ordered by seq and without duplicates, which occur because late lines form separate chunks."""
    import numpy as np

    non_empty = [part.columns for part in parts if len(part)]
    if not non_empty:
        return Points.of([])
    points = Points(*(non_empty[0] if len(non_empty) == 1 else map(np.concatenate, zip(*non_empty, strict=True))))
    if bool((np.diff(points.seq) > 0).all()):
        return points
    return points.pick(np.unique(points.seq, return_index=True)[1])


def thin(points: Points, count: int) -> Points:
    """Downsample to at most `count` points that keep the shape.

    The minimum and maximum of each stretch and the highest and lowest points overall are kept, so that even a spike of
    a single step stays visible.
    """
    if len(points) <= count:
        return points
    import numpy as np
    from tsdownsample import MinMaxLTTBDownsampler

    values = np.require(points.value, requirements=("C", "A"))  # columns of a chunk may be unaligned
    sampler = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]  # its constructor is not annotated
    extremes = min(KEPT_EXTREMES, count // 8)
    chosen_indices = sampler.downsample(values, n_out=max(3, count - 2 * extremes)).astype(np.int64)
    if extremes:
        order = np.argpartition(values, (extremes, len(values) - extremes - 1))
        chosen_indices = np.union1d(chosen_indices, np.concatenate([order[:extremes], order[-extremes:]]))
    return points.pick(chosen_indices)


def outline(points: Points) -> Points:
    """Reduce points to the minimum and maximum of each of the STRETCHES stretches and the two end points."""
    if len(points) <= 2 * STRETCHES:
        return points
    import numpy as np

    width = -(-len(points) // STRETCHES)
    filled = np.pad(points.value, (0, width * STRETCHES - len(points)), mode="edge").reshape(STRETCHES, width)
    starts = np.arange(STRETCHES) * width
    extremes = [starts + filled.argmin(axis=1), starts + filled.argmax(axis=1), [0, len(points) - 1]]
    return points.pick(np.unique(np.minimum(np.concatenate(extremes), len(points) - 1)))


def series(run: Run, metrics: Sequence[str], points: int = 1000, window: Window = WHOLE_RUN) -> SeriesResponse:
    """Return each metric's history within the window, in at most `points` points, and the seq after which the socket
    continues."""
    # The order of the reads matters: a fold in between moves rows into chunks, never back.
    last_seq: int = Run.objects.values_list("last_seq", flat=True).get(pk=run.pk)
    names = list(dict.fromkeys(metrics))
    read_names = list(dict.fromkeys([*names, TOKENS])) if window.x in ("step", "tokens") else names
    unfolded = tails([run.pk], read_names)
    tail = {name: unfolded.get((run.pk, name), Points.of([])) for name in (*read_names, TOKENS)}
    chunks = _chunks(run, read_names)
    clock = _ProgressClock(join([_outlines(chunks.get(TOKENS, ())), tail[TOKENS]]))
    requests = {name: _MetricRequest(chunks[name], tail[name], window, clock, points) for name in names}
    _read_details(run, requests)
    return {
        "last": max(last_seq, *(int(points.seq[-1]) for points in tail.values() if len(points)), 0),
        "series": {name: _to_json(request.result(), window, clock) for name, request in requests.items()},
    }


def reported_metrics(run: Run) -> list[str]:
    """Return the names of all metrics that the run has reported, without a query."""
    return sorted(run.last_metrics)


def metrics(run: Run) -> list[Metric]:
    unfolded = tails([run.pk], None)
    totals = MetricChunk.objects.filter(run=run).values_list("metric").annotate(Sum("points")).order_by("metric")
    counts: dict[str, int] = dict(totals)
    for (_, name), points in unfolded.items():
        counts[name] = counts.get(name, 0) + len(points)
    return [{"name": name, "kind": kind_of(name), "points": counts[name]} for name in sorted(counts)]


def kind_of(metric: str) -> str:
    group = metric.partition("/")[0]
    return {"gpu": "system", "host": "system", "vllm": "vllm"}.get(group, "train")


# --- reading ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Chunk:
    first: int
    last: int
    points: int
    outline: bytes
    """Result of Points.pack_rows, or b"" for chunks that have no outline yet."""


def tails(runs: Sequence[str], names: Sequence[str] | None) -> dict[tuple[str, str], Points]:
    """Return the points of rows not folded yet, by (run, metric). If `names` is None, read all metrics."""
    by_key: dict[tuple[str, str], list[tuple[int, int | None, float, float]]] = {}
    rows = MetricRow.objects.filter(run__in=runs, seq__gt=F("run__folded_seq"), superseded=False).order_by("run", "seq")
    # Read as text, because the driver's JSON decoding takes several times as long and there may be a thousand rows.
    texts = rows.annotate(text=Cast("values", TextField())).values_list("run_id", "seq", "step", "t", "text")
    for run_id, seq, step, t, text in texts.iterator(READ_BATCH):
        values = _VALUES.decode(text)
        for name in values if names is None else names:
            if (value := values.get(name)) is not None:
                by_key.setdefault((run_id, name), []).append((seq, step, t, value))
    return {key: Points.of(points) for key, points in by_key.items()}


def _chunks(run: Run, names: Sequence[str]) -> dict[str, list[_Chunk]]:
    by_metric: dict[str, list[_Chunk]] = {name: [] for name in names}
    # Tuples instead of model instances, which take several times as long to create as to read.
    stored_chunks = MetricChunk.objects.filter(run=run, metric__in=names).order_by("metric", "first_seq")
    rows = stored_chunks.values_list("metric", "first_seq", "last_seq", "points", "outline__data")
    for name, first, last, points, data in rows:
        by_metric[name].append(_Chunk(first, last, points, bytes(data or b"")))
    return by_metric


def _outlines(chunks: Iterable[_Chunk]) -> Points:
    return Points.unpack_rows([chunk.outline for chunk in chunks])


def _read_details(run: Run, requests: "Mapping[str, _MetricRequest]") -> None:
    """Read the chunks whose outlines are too coarse, in one query for all metrics."""
    needed_seqs = {name: request.needs for name, request in requests.items() if request.needs}
    if not needed_seqs:
        return
    low, high = min(first for first, _ in needed_seqs.values()), max(last for _, last in needed_seqs.values())
    stored_chunks = MetricChunk.objects.filter(run=run, metric__in=needed_seqs, last_seq__gte=low, first_seq__lte=high)
    for name, points, data in stored_chunks.order_by("metric", "first_seq").values_list("metric", "points", "data"):
        requests[name].details.append(Points.unpack(data, points))


class _MetricRequest:
    """A request for one metric: its outline if fine enough, otherwise the seqs of the chunks to read."""

    def __init__(self, chunks: list[_Chunk], tail: Points, window: Window, clock: "_ProgressClock", count: int) -> None:
        self.details: list[Points] = []
        self._tail, self._window, self._clock, self._count = tail, window, clock, count
        self._outline = self._clip_to_window(join([_outlines(chunks), tail]))
        self.needs = self._missing_seqs(chunks)
        """First and last seq of the chunks to read, or None if the outline is fine enough."""

    def result(self) -> Points:
        return thin(
            self._clip_to_window(join([*self.details, self._tail])) if self.needs else self._outline, self._count
        )

    def _missing_seqs(self, chunks: list[_Chunk]) -> tuple[int, int] | None:
        if not all(chunk.outline for chunk in chunks):
            return chunks[0].first, chunks[-1].last
        if not len(self._outline) or len(self._outline) >= 2 * self._count:
            return None
        low, high = int(self._outline.seq[0]), int(self._outline.seq[-1])
        visible_chunks = [chunk for chunk in chunks if chunk.last >= low and chunk.first <= high]
        is_complete = all(len(chunk.outline) == chunk.points * ROW_BYTES for chunk in visible_chunks)
        return None if is_complete else (visible_chunks[0].first, visible_chunks[-1].last)

    def _clip_to_window(self, points: Points) -> Points:
        """Return the points within the window and one neighbour on each side, so that lines reach the chart's edge."""
        if self._window.whole or not len(points):
            return points
        import numpy as np

        # Points would be out of order if the clock had been set back.
        x = np.maximum.accumulate(self._clock.x(points, self._window.x))
        low, high = self._window.low, self._window.high
        start = 0 if low is None else int(np.searchsorted(x, low, "left"))
        stop = len(x) if high is None else int(np.searchsorted(x, high, "right"))
        return points.pick(slice(max(0, start - 1), stop + 1))


@dataclass(frozen=True)
class _ProgressClock:
    """Converter from seq to training progress, for machine metrics, which have neither steps nor tokens."""

    counted: Points

    def x(self, points: Points, axis: str) -> "NDArray[np.float64]":
        if axis == "time":
            return points.t
        return self.tokens(points) if axis == "tokens" else self.steps(points).astype("<f8")

    def tokens(self, points: Points) -> "NDArray[np.float64]":
        import numpy as np

        if not len(self.counted):
            return np.zeros(len(points))
        return np.interp(points.seq, self.counted.seq, self.counted.value, left=0.0)

    def steps(self, points: Points) -> "NDArray[np.int32]":
        import numpy as np

        if not len(self.counted) or not bool((points.step == NO_STEP).any()):
            return points.step
        filled = np.interp(points.seq, self.counted.seq, self.counted.step, left=0.0).astype("<i4")
        return np.where(points.step == NO_STEP, filled, points.step)


def _to_json(points: Points, window: Window, clock: _ProgressClock) -> Series:
    steps = clock.steps(points) if window.x == "step" else points.step
    columns: Series = {
        "seq": points.seq.tolist(),
        "step": [None if step == NO_STEP else step for step in steps.tolist()],
        "t": points.t.tolist(),
        "value": points.value.tolist(),
    }
    if window.x == "tokens":
        columns["tokens"] = clock.tokens(points).tolist()
    return columns
