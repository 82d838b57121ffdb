"""Frames for viewers: everything after a cursor, read from the database and encoded once."""

from dataclasses import dataclass
from typing import Any

import msgspec
from django.db.models import Max, Min, Q

from runs.engine import queries, timeline
from runs.engine.models import Run
from runs.engine.records import MetricRow, RunEvent
from workers.contract.wire.names import EventKind

MAX_ROWS = 2000
RELOAD = '{"type":"reload"}'


@dataclass(frozen=True)
class StreamCursor:
    """A viewer's position: the `seq` of the last line, and the id of the last event that the control plane created
    (`event`), since those events have no seq."""

    seq: int
    event: int


@dataclass(frozen=True)
class StreamFrame:
    cursor: StreamCursor
    texts: tuple[str, ...] = ()
    has_more: bool = False


@dataclass
class FrameExtras:
    """The content of the last frame other than rows, which is sent again only when it changes."""

    run: dict[str, Any] | None = None
    logs: dict[str, int] | None = None
    samples_ack: tuple[str, int] = ("", 0)


def read(
    run_id: str,
    base: StreamCursor,
    sent_extras: FrameExtras,
    *,
    with_logs: bool = False,
    end: StreamCursor | None = None,
) -> StreamFrame | None:
    """Read the frame after `base` up to `end`, and update `sent_extras`. Return None if the run no longer exists."""
    run = queries.with_attempts(Run.objects.filter(pk=run_id)).defer("spec", "trend", "notes").first()
    if run is None:
        return None
    too_old = _too_old(run, base.seq)
    rows = [] if too_old else queries.rows_after(run_id, base.seq, MAX_ROWS + 1)
    if end is not None:
        rows = [row for row in rows if row[0] <= end.seq]
    has_more = len(rows) > MAX_ROWS
    rows = rows[:MAX_ROWS]
    stored_seq = run.last_seq if end is None else end.seq
    last_seq = rows[-1][0] if has_more else max(stored_seq, base.seq, *(row[0] for row in rows[-1:]))
    control_events = Q(seq=None, pk__gt=base.event) & (Q() if end is None else Q(pk__lte=end.event))
    new_events = Q(seq__gt=base.seq, seq__lte=last_seq) | control_events
    events = list(RunEvent.objects.filter(new_events, run_id=run_id).select_related("attempt").order_by("pk"))
    newest_ids = [event.pk for event in events if event.seq is None] if end is None else [end.event]
    cursor = StreamCursor(last_seq, max([base.event, *newest_ids]))
    extra = _changes(run, sent_extras, with_logs)
    texts = []
    if rows or events or extra:
        views = [timeline.event_view(event) for event in events]
        message = {"type": "frame", "last": last_seq, "rows": rows, "events": views, **extra}
        texts.append(msgspec.json.encode(message).decode())
    if too_old or any(event.kind == EventKind.TRAINING and event.attempt.number > 1 for event in events):
        # Rows were folded away, or a resume made drawn points void, so the page must reload the series.
        texts.append(RELOAD)
    return StreamFrame(cursor, tuple(texts), has_more)


def start(run_id: str, after: int) -> tuple[StreamCursor, StreamCursor] | None:
    """Return the cursor of a viewer that has the lines up to `after`, and the newest cursor. Return None if there is no
    such run. The viewer may receive an event twice, which its id reveals, but never misses one."""
    last_seq = Run.objects.filter(pk=run_id).values_list("last_seq", flat=True).first()
    if last_seq is None:
        return None
    seq = min(after, last_seq)
    events = RunEvent.objects.filter(run_id=run_id)
    # Ids follow the order of commits: every writer of events locks the attempt's row.
    newest_seen = events.filter(seq__lte=seq).aggregate(newest=Max("pk"))["newest"] or 0
    control_events = events.filter(seq=None)
    last_control_event = control_events.filter(pk__lt=newest_seen).aggregate(newest=Max("pk"))["newest"] or 0
    newest_id = control_events.aggregate(newest=Max("pk"))["newest"] or 0
    return StreamCursor(seq, last_control_event), StreamCursor(last_seq, newest_id)


def _too_old(run: Run, seq: int) -> bool:
    if seq >= run.folded_seq:
        return False
    oldest_seq = MetricRow.objects.filter(run=run).aggregate(oldest=Min("seq"))["oldest"]
    return oldest_seq is None or oldest_seq > seq + 1


def _changes(run: Run, sent_extras: FrameExtras, with_logs: bool) -> dict[str, Any]:
    """Return what has changed since the last frame. `sent_extras` is updated once everything has been read, so that a
    failed read is repeated in full."""
    changes: dict[str, Any] = {}
    summary = dict(queries.summary(run))
    if summary != sent_extras.run:
        changes["run"] = summary
    attempt = run.latest()
    samples_ack = (attempt.pk, attempt.samples_ack)
    if samples_ack != sent_extras.samples_ack and (step := queries.latest_sample_step(run)) is not None:
        changes["samples"] = step
    sizes = queries.log_sizes(attempt) if with_logs else sent_extras.logs
    if sizes != sent_extras.logs:
        changes["logs"] = sizes
    sent_extras.run, sent_extras.samples_ack, sent_extras.logs = summary, samples_ack, sizes
    return changes
