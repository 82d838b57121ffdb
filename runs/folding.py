"""Raw rows become chunks of about 1,000 points per metric; what a resume made void is cut out of both."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from django.db import transaction
from django.db.models import F, Q

from runs.models import Attempt, MetricChunk, MetricRow, Run
from runs.series import Points, join

CHUNK_POINTS = 1000
FOLD_ROWS = 1000
"""Fold when so many rows wait: below it the tail is cheap to read raw."""
BATCH_ROWS = 1000
"""In one transaction: while it lasts, SQLite lets nobody else write."""
PAUSE_S = 0.01
"""Between two transactions: whoever waited for the one to end comes in before the next."""
KEEP_ROWS = 2000
"""Newest raw rows kept although folded: the cursors of viewers that blink or reconnect."""

Row = tuple[int, int | None, float, dict[str, float]]
"""(seq, step, t, values)"""


def fold_all(batches: int = 50) -> int:
    """Fold what waits in any run, at most `batches` transactions of it. Answers how many were done."""
    due = Run.objects.filter(last_seq__gte=F("folded_seq") + FOLD_ROWS).order_by("pk")
    done = 0
    for run_id in list(due.values_list("pk", flat=True)):
        while done < batches and fold(run_id):
            done += 1
            time.sleep(PAUSE_S)
    return done


def fold(run_id: str, *, at_least: int = FOLD_ROWS) -> bool:
    """Fold one batch of a run's waiting rows. Of two folders one wins. False: too few wait, or the race was lost."""
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        waiting = MetricRow.objects.filter(run=run, seq__gt=run.folded_seq).order_by("seq")
        rows = list(waiting.values_list("seq", "step", "t", "values", "superseded")[:BATCH_ROWS])
        if run.last_seq - run.folded_seq < at_least or (rows and len(rows) < at_least):
            return False
        # Without rows only events lie between; the marker still moves, so that they are not looked through again.
        upto = rows[-1][0] if rows else run.last_seq
        if not Run.objects.filter(pk=run_id, folded_seq=run.folded_seq).update(folded_seq=upto):
            return False
        add(run_id, [(seq, step, t, values) for seq, step, t, values, void in rows if not void])
        _prune(run_id, upto)
    return True


def add(run_id: str, rows: Sequence[Row]) -> None:
    """Append rows to the chunks of their metrics, inside the caller's transaction."""
    columns: dict[str, list[tuple[int, int | None, float, float]]] = {}
    for seq, step, t, values in rows:
        for name, value in values.items():
            columns.setdefault(name, []).append((seq, step, t, value))
    open_chunks = {
        chunk.metric: chunk
        for chunk in MetricChunk.objects.filter(run_id=run_id, metric__in=columns, points__lt=CHUNK_POINTS)
    }
    changed: list[MetricChunk] = []
    fresh: list[MetricChunk] = []
    for name, points in columns.items():
        chunk = open_chunks.get(name)
        ordered = Points.of(points)
        # A chunk is only ever extended at its end; lines handed in late make chunks of their own.
        if chunk is not None and chunk.last_seq < points[0][0]:
            ordered = join([Points.unpack(chunk.data, chunk.points), ordered])
            _fill(chunk, ordered.slice(0, CHUNK_POINTS))
            changed.append(chunk)
            ordered = ordered.slice(CHUNK_POINTS, len(ordered))
        for start in range(0, len(ordered), CHUNK_POINTS):
            new = MetricChunk(run_id=run_id, metric=name)
            _fill(new, ordered.slice(start, start + CHUNK_POINTS))
            fresh.append(new)
    MetricChunk.objects.bulk_update(changed, ["first_seq", "last_seq", "points", "data"], batch_size=100)
    MetricChunk.objects.bulk_create(fresh, batch_size=100)


def supersede(attempt: Attempt, step: int) -> None:
    """`attempt` resumed from `step`: what earlier attempts wrote of later steps is counted and drawn no more."""
    if attempt.first_seq is None:
        return
    earlier = Q(run_id=attempt.run_id, seq__lt=attempt.first_seq, step__gt=step)
    MetricRow.objects.filter(earlier).update(superseded=True)
    for chunk in MetricChunk.objects.filter(run_id=attempt.run_id, first_seq__lt=attempt.first_seq).iterator(100):
        points = Points.unpack(chunk.data, chunk.points)
        valid = (points.step <= step) | (points.seq >= attempt.first_seq)
        if valid.all():
            continue
        if valid.any():
            _fill(chunk, points.pick(valid))
            chunk.save(update_fields=["first_seq", "last_seq", "points", "data"])
        else:
            chunk.delete()


def _fill(chunk: MetricChunk, points: Points) -> None:
    chunk.first_seq, chunk.last_seq = int(points.seq[0]), int(points.seq[-1])
    chunk.points = len(points)
    chunk.data = points.pack()


def _prune(run_id: str, folded: int) -> None:
    """Delete folded raw rows but the newest KEEP_ROWS."""
    newest = MetricRow.objects.filter(run_id=run_id).order_by("-seq").values_list("seq", flat=True)
    edge: Iterable[int] = newest[KEEP_ROWS : KEEP_ROWS + 1]
    for seq in edge:
        MetricRow.objects.filter(run_id=run_id, seq__lte=min(seq, folded)).delete()
