"""Folding raw rows into chunks of about 1,000 points per metric, and removing points that a resume made void."""

import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from django.db import transaction
from django.db.models import Count, F, Q, QuerySet
from django.utils import timezone

from runs.engine.models import Attempt, Run
from runs.engine.records import ChunkOutline, MetricChunk, MetricRow
from runs.engine.states import ACTIVE
from runs.engine.step_spans import StepSpans
from runs.insight.metrics.series import Points, join, outline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CHUNK_POINTS = 1000
FOLD_ROWS = 1000
"""Minimum number of waiting rows for folding; fewer are cheap to read raw."""
BATCH_ROWS = 1000
"""Rows folded per transaction, during which SQLite blocks other writers."""
PAUSE_S = 0.01
"""Seconds between transactions, so that waiting writers get their turn."""
KEEP_ROWS = 2000
"""Number of newest raw rows kept after folding, for the cursors of reconnecting viewers."""
KEEP_STEPS = 300

LATE_LINES_PERIOD = timedelta(days=7)
"""Time after a run's end for which it is still folded, since a host that reconnects sends late lines. Rows that arrive
even later stay unfolded."""

Row = tuple[int, int | None, float, dict[str, float]]
"""A metrics line, as (seq, step, t, values)."""


def fold_all(batches: int = 50) -> int:
    """Fold waiting rows of all runs in at most `batches` transactions, and return the number of transactions."""
    recent_attempts = Attempt.objects.filter(Q(status__in=ACTIVE) | Q(ended_at__gte=timezone.now() - LATE_LINES_PERIOD))
    waiting_runs = Run.every.filter(pk__in=recent_attempts.order_by().values("run_id"))
    due_runs = waiting_runs.filter(last_seq__gte=F("folded_seq") + FOLD_ROWS).order_by("pk")
    folded_count = 0
    for run_id in list(due_runs.values_list("pk", flat=True)):
        while folded_count < batches and fold(run_id):
            folded_count += 1
            time.sleep(PAUSE_S)
    return folded_count


def fold(run_id: str, *, at_least: int = FOLD_ROWS) -> bool:
    """Fold one batch of a run's waiting rows. Return False if too few are waiting or another process was first."""
    with transaction.atomic():
        run = Run.every.select_for_update().get(pk=run_id)
        waiting_rows = MetricRow.objects.filter(run=run, seq__gt=run.folded_seq).order_by("seq")
        rows = list(waiting_rows.values_list("seq", "step", "t", "values", "superseded")[:BATCH_ROWS])
        if run.last_seq - run.folded_seq < at_least or (rows and len(rows) < at_least):
            return False
        # Without rows, there are only events in between; the marker still moves so that they aren't read again.
        last_seq = rows[-1][0] if rows else run.last_seq
        if not Run.every.filter(pk=run_id, folded_seq=run.folded_seq).update(folded_seq=last_seq):
            return False
        add(run_id, [(seq, step, t, values) for seq, step, t, values, void in rows if not void])
        _prune(run_id, last_seq)
    return True


def add(run_id: str, rows: Sequence[Row]) -> None:
    """Append rows to the chunks of their metrics, within the caller's transaction."""
    columns: dict[str, list[tuple[int, int | None, float, float]]] = {}
    for seq, step, t, values in rows:
        for name, value in values.items():
            columns.setdefault(name, []).append((seq, step, t, value))
    open_chunks = {
        chunk.metric: chunk
        for chunk in MetricChunk.objects.filter(run_id=run_id, metric__in=columns, points__lt=CHUNK_POINTS)
    }
    changed_chunks: list[MetricChunk] = []
    new_chunks: list[MetricChunk] = []
    for name, points in columns.items():
        chunk = open_chunks.get(name)
        ordered_points = Points.of(points)
        # A chunk is only ever extended at its end; late lines form chunks of their own.
        if chunk is not None and chunk.last_seq < points[0][0]:
            ordered_points = join([Points.unpack(chunk.data, chunk.points), ordered_points])
            _fill(chunk, ordered_points.pick(slice(CHUNK_POINTS)))
            changed_chunks.append(chunk)
            ordered_points = ordered_points.pick(slice(CHUNK_POINTS, None))
        for start in range(0, len(ordered_points), CHUNK_POINTS):
            new_chunk = MetricChunk(run_id=run_id, metric=name)
            _fill(new_chunk, ordered_points.pick(slice(start, start + CHUNK_POINTS)))
            new_chunks.append(new_chunk)
    MetricChunk.objects.bulk_update(changed_chunks, ["first_seq", "last_seq", "points", "data"], batch_size=100)
    _store_outlines(changed_chunks + MetricChunk.objects.bulk_create(new_chunks, batch_size=100))


def supersede(attempt: Attempt, step: int) -> None:
    """Void the points of earlier attempts after `step`, from which `attempt` resumed: mark rows, and delete
    step spans and chunked points.

    This runs in the transaction of the lines that report the resume, so it only touches chunks with void points: one or
    two per metric if a long run goes back a little. Steps never decrease within the valid points, since the void points
    of earlier resumes are deleted. So all points from a metric's first void point to the start of `attempt` are void.
    """
    before_seq = attempt.first_seq
    if before_seq is None:
        return
    void_condition = Q(run_id=attempt.run_id, seq__lt=before_seq, step__gt=step)
    MetricRow.objects.filter(void_condition).update(superseded=True)
    StepSpans.objects.filter(void_condition).delete()
    chunks = MetricChunk.objects.filter(run_id=attempt.run_id, first_seq__lt=before_seq)
    void_chunks = chunks.filter(last_seq__gt=_last_valid(chunks, step)).order_by("metric", "first_seq")
    shortened_chunks: list[MetricChunk] = []
    void_ids: list[int] = []
    for _, of_metric in groupby(void_chunks.values_list("metric", "pk", "last_seq"), key=itemgetter(0)):
        since = False
        for _, pk, last_seq in of_metric:
            if since and last_seq < before_seq:
                void_ids.append(pk)
                continue
            chunk = MetricChunk.objects.get(pk=pk)
            points = Points.unpack(chunk.data, chunk.points)
            if not (points.step >= 0).any():
                break  # a metric without steps, such as a GPU's memory
            is_valid = (points.step <= step) | (points.seq >= before_seq)
            since = since or not is_valid.all()
            if not is_valid.any():
                void_ids.append(pk)
            elif not is_valid.all():
                _fill(chunk, points.pick(is_valid))
                shortened_chunks.append(chunk)
    for start in range(0, len(void_ids), 500):
        batch = void_ids[start : start + 500]
        ChunkOutline.objects.filter(chunk__in=batch).delete()
        MetricChunk.objects.filter(pk__in=batch).only("pk").delete()
    MetricChunk.objects.bulk_update(shortened_chunks, ["first_seq", "last_seq", "points", "data"], batch_size=100)
    _store_outlines(shortened_chunks)


def _last_valid(chunks: QuerySet[MetricChunk], step: int) -> int:
    """Return a seq up to which no point is after `step`, or 0 if unknown, by bisection in the longest metric."""
    for metric, count in list(chunks.values_list("metric").annotate(count=Count("pk")).order_by("-count", "metric")):
        ends = list(chunks.filter(metric=metric).order_by("last_seq").values_list("pk", flat=True))
        last_steps = _steps_of(ends[-1])[1]
        if not (last_steps >= 0).any():
            continue
        # The chunk before the first one that ends later: the gap between the two is checked as well.
        index = bisect_left(ends, True, hi=count, key=lambda pk: bool((_steps_of(pk)[1] > step).any()))
        return int(_steps_of(ends[index - 1])[0][-1]) if index else 0
    return 0


def _steps_of(pk: int) -> "tuple[NDArray[np.int64], NDArray[np.int32]]":
    data, points = MetricChunk.objects.values_list("data", "points").get(pk=pk)
    unpacked = Points.unpack(data, points)
    return unpacked.seq, unpacked.step


def _store_outlines(chunks: Sequence[MetricChunk]) -> None:
    outlines = [ChunkOutline(chunk=c, data=outline(Points.unpack(c.data, c.points)).pack_rows()) for c in chunks]
    ChunkOutline.objects.bulk_create(
        outlines, batch_size=100, update_conflicts=True, unique_fields=["chunk"], update_fields=["data"]
    )


def _fill(chunk: MetricChunk, points: Points) -> None:
    chunk.first_seq, chunk.last_seq = int(points.seq[0]), int(points.seq[-1])
    chunk.points = len(points)
    chunk.data = points.pack()


def _prune(run_id: str, folded: int) -> None:
    """Delete folded raw rows except the newest KEEP_ROWS, and timings except those of the newest KEEP_STEPS steps."""
    steps = StepSpans.objects.filter(run_id=run_id).order_by("-seq").values_list("seq", flat=True)
    edge: Iterable[int] = steps[KEEP_STEPS : KEEP_STEPS + 1]
    for seq in edge:
        StepSpans.objects.filter(run_id=run_id, seq__lte=seq).delete()
    newest_seqs = MetricRow.objects.filter(run_id=run_id).order_by("-seq").values_list("seq", flat=True)
    edge = newest_seqs[KEEP_ROWS : KEEP_ROWS + 1]
    for seq in edge:
        MetricRow.objects.filter(run_id=run_id, seq__lte=min(seq, folded)).delete()
