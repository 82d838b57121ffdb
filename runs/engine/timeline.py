"""A run's timeline: adding events, and listing them as pages show them."""

from typing import Any, TypedDict

from django.db import transaction
from django.utils import timezone

from runs.engine import hints, sentences
from runs.engine.models import Attempt, Run
from runs.engine.records import RunEvent


class EventView(TypedDict):
    id: int
    seq: int | None
    at: str
    kind: str
    step: int | None
    actor: str
    text: str


def add_event(attempt: Attempt, kind: str, actor: str, **data: Any) -> None:
    """Add an event to a run's timeline, and notify open pages on commit. Call it in a transaction that locks the
    attempt's row, as all writers of events do."""
    RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt, at=timezone.now(), kind=kind, actor=actor, data=data
    )
    transaction.on_commit(lambda: hints.changed(attempt.run_id))


def events(run: Run, limit: int = 500) -> list[EventView]:
    """List the newest `limit` events of a run's timeline, oldest first."""
    newest_events = RunEvent.objects.filter(run=run).select_related("attempt").order_by("-id")[:limit]
    return [event_view(event) for event in reversed(newest_events)]


def event_view(event: RunEvent) -> EventView:
    return {
        "id": event.pk,
        "seq": event.seq,
        "at": event.at.isoformat(),
        "kind": event.kind,
        "step": event.step,
        "actor": event.actor,
        "text": sentences.of_event(event),
    }
