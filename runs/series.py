"""The numbers of a chart: points packed in chunks, the raw tail after them, thinned so that spikes stay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from runs.models import MetricChunk, MetricRow, Run

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NO_STEP = -1


class Series(TypedDict):
    seq: list[int]
    step: list[int | None]
    t: list[float]
    value: list[float]


class SeriesAnswer(TypedDict):
    last: int
    series: dict[str, Series]


@dataclass(frozen=True)
class Points:
    """Columns of equal length, ordered by seq."""

    seq: NDArray[np.int64]
    step: NDArray[np.int32]
    t: NDArray[np.float64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.seq)

    @classmethod
    def of(cls, points: Sequence[tuple[int, int | None, float, float]]) -> Points:
        import numpy as np

        return cls(
            np.array([p[0] for p in points], dtype="<i8"),
            np.array([NO_STEP if p[1] is None else p[1] for p in points], dtype="<i4"),
            np.array([p[2] for p in points], dtype="<f8"),
            np.array([p[3] for p in points], dtype="<f8"),
        )

    @classmethod
    def unpack(cls, data: bytes | memoryview[int], points: int) -> Points:
        import numpy as np

        raw = bytes(data)
        at = [0, 8 * points, 12 * points, 20 * points]
        kinds = ("<i8", "<i4", "<f8", "<f8")
        return cls(*(np.frombuffer(raw, kind, points, start) for kind, start in zip(kinds, at, strict=True)))

    def pack(self) -> bytes:
        return b"".join(column.tobytes() for column in (self.seq, self.step, self.t, self.value))

    def pick(self, mask: NDArray[np.bool_] | NDArray[np.int64]) -> Points:
        return Points(self.seq[mask], self.step[mask], self.t[mask], self.value[mask])

    def slice(self, start: int, stop: int) -> Points:
        return Points(self.seq[start:stop], self.step[start:stop], self.t[start:stop], self.value[start:stop])


def join(parts: Iterable[Points]) -> Points:
    """All parts as one, ordered by seq (lines handed in late make chunks of their own)."""
    import numpy as np

    full = [part for part in parts if len(part)]
    if not full:
        return Points.of([])
    if len(full) == 1:
        return full[0]
    joined = Points(
        np.concatenate([p.seq for p in full]),
        np.concatenate([p.step for p in full]),
        np.concatenate([p.t for p in full]),
        np.concatenate([p.value for p in full]),
    )
    if bool((np.diff(joined.seq) > 0).all()):
        return joined
    return joined.pick(np.argsort(joined.seq, kind="stable"))


def thin(points: Points, count: int) -> Points:
    """At most `count` points; the lowest and the highest of each stretch stay, so a one-step spike is seen."""
    if len(points) <= count:
        return points
    import numpy as np
    from tsdownsample import MinMaxLTTBDownsampler

    sampler = MinMaxLTTBDownsampler()  # type: ignore[no-untyped-call]  # it has no annotation for its constructor
    chosen = sampler.downsample(np.ascontiguousarray(points.value), n_out=max(3, count))
    return points.pick(chosen.astype(np.int64))


def series(run: Run, metrics: Sequence[str], points: int = 1000) -> SeriesAnswer:
    """Each metric's whole history in at most `points` points, and the seq from which the socket goes on."""
    # The order of the reads matters: a fold between them moves rows into chunks, never the other way.
    head = Run.objects.values("last_seq", "folded_seq").get(pk=run.pk)
    wanted = list(dict.fromkeys(metrics))
    tail: dict[str, list[tuple[int, int | None, float, float]]] = {name: [] for name in wanted}
    rows = MetricRow.objects.filter(run=run, seq__gt=head["folded_seq"], superseded=False).order_by("seq")
    last = head["last_seq"]
    for seq, step, t, values in rows.values_list("seq", "step", "t", "values"):
        last = max(last, seq)
        for name in wanted:
            if name in values:
                tail[name].append((seq, step, t, values[name]))
    parts: dict[str, list[Points]] = {name: [] for name in wanted}
    # Tuples, not model instances: making those takes several times as long as reading them.
    chunks = MetricChunk.objects.filter(run=run, metric__in=wanted).order_by("metric", "first_seq")
    for metric, count, data in chunks.values_list("metric", "points", "data"):
        parts[metric].append(Points.unpack(data, count))
    answer = {}
    for name in wanted:
        folded = join(parts[name])
        until = int(folded.seq[-1]) if len(folded) else 0
        fresh = Points.of([point for point in tail[name] if point[0] > until])
        answer[name] = _plain(thin(join([folded, fresh]), points))
    return {"last": last, "series": answer}


def _plain(points: Points) -> Series:
    return {
        "seq": points.seq.tolist(),
        "step": [None if step == NO_STEP else step for step in points.step.tolist()],
        "t": points.t.tolist(),
        "value": points.value.tolist(),
    }
