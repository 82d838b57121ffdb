"""What a viewer is told: everything after its cursor, read from the store and encoded once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from django.db.models import Max, Min, Q

from runs import queries
from runs.models import MetricRow, Run, RunEvent
from workers.contract import EventKind

ROWS = 2000
"""Rows in one frame; a viewer that is further behind gets several."""
RELOAD = '{"type":"reload"}'


@dataclass(frozen=True)
class Cursor:
    """What a viewer has: every line up to `seq`, and of the control plane's own events (no seq) every id up to
    `event`."""

    seq: int
    event: int


@dataclass(frozen=True)
class Frame:
    upto: Cursor
    """What a viewer has who had what the frame begins after, and took it."""
    texts: tuple[str, ...] = ()
    """Messages to send; none if nothing is new."""
    more: bool = False
    """There was more than fits into one frame."""


@dataclass
class FrameExtras:
    """What the last frame said besides rows: said again only when it changes."""

    run: dict[str, Any] | None = None
    logs: dict[str, int] | None = None
    samples_ack: tuple[str, int] = ("", 0)


def read(
    run_id: str, base: Cursor, shown: FrameExtras, *, with_logs: bool = False, end: Cursor | None = None
) -> Frame | None:
    """The frame after `base`, with lines and events up to `end` if that is given; `shown` is brought up to date. None:
    the run is gone."""
    run = queries.with_attempts(Run.objects.filter(pk=run_id)).first()
    if run is None:
        return None
    too_old = _too_old(run, base.seq)
    rows = [] if too_old else queries.rows_after(run_id, base.seq, ROWS + 1)
    if end is not None:
        rows = [row for row in rows if row[0] <= end.seq]
    more = len(rows) > ROWS
    rows = rows[:ROWS]
    stored = run.last_seq if end is None else end.seq
    last = rows[-1][0] if more else max(stored, base.seq, *(row[0] for row in rows[-1:]))
    own = Q(seq=None, pk__gt=base.event) & (Q() if end is None else Q(pk__lte=end.event))
    fresh = Q(seq__gt=base.seq, seq__lte=last) | own
    events = list(RunEvent.objects.filter(fresh, run_id=run_id).select_related("attempt").order_by("pk"))
    newest = [event.pk for event in events if event.seq is None] if end is None else [end.event]
    upto = Cursor(last, max([base.event, *newest]))
    extra = _changes(run, shown, with_logs)
    texts = []
    if rows or events or extra:
        views = [queries.event_view(event) for event in events]
        texts.append(_text({"type": "frame", "last": last, "rows": rows, "events": views, **extra}))
    if too_old or any(event.kind == EventKind.TRAINING and event.attempt.number > 1 for event in events):
        # The rows are folded away, or a resume made drawn points void: the page takes the series anew.
        texts.append(RELOAD)
    return Frame(upto, tuple(texts), more)


def start(run_id: str, after: int) -> tuple[Cursor, Cursor] | None:
    """Where a viewer stands that has the lines up to `after`, and the end of the store. None: there is no such run.

    The viewer may be told of an event twice (each has an id), but of none too few.
    """
    last = Run.objects.filter(pk=run_id).values_list("last_seq", flat=True).first()
    if last is None:
        return None
    seq = min(after, last)
    events = RunEvent.objects.filter(run_id=run_id)
    # Ids are given in the order of commit: every writer of events holds the attempt's row.
    seen = events.filter(seq__lte=seq).aggregate(newest=Max("pk"))["newest"] or 0
    own = events.filter(seq=None)
    had = own.filter(pk__lt=seen).aggregate(newest=Max("pk"))["newest"] or 0
    newest = own.aggregate(newest=Max("pk"))["newest"] or 0
    return Cursor(seq, had), Cursor(last, newest)


def _text(message: dict[str, Any]) -> str:
    return msgspec.json.encode(message).decode()


def _too_old(run: Run, seq: int) -> bool:
    if seq >= run.folded_seq:
        return False
    oldest = MetricRow.objects.filter(run=run).aggregate(oldest=Min("seq"))["oldest"]
    return oldest is None or oldest > seq + 1


def _changes(run: Run, shown: FrameExtras, with_logs: bool) -> dict[str, Any]:
    """What the last frame did not say. `shown` is brought up to date when all of it is read: a reading that fails half
    way says everything again."""
    extra: dict[str, Any] = {}
    summary = dict(queries.summary(run))
    if summary != shown.run:
        extra["run"] = summary
    attempt = run.latest()
    samples_ack = (attempt.pk, attempt.samples_ack)
    if samples_ack != shown.samples_ack and (step := queries.latest_sample_step(run)) is not None:
        extra["samples"] = step
    sizes = queries.log_sizes(attempt) if with_logs else shown.logs
    if sizes != shown.logs:
        extra["logs"] = sizes
    shown.run, shown.samples_ack, shown.logs = summary, samples_ack, sizes
    return extra
