"""Lines of a run's timeline that the control plane writes for people and for its own parts."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from runs.engine import hints
from runs.engine.models import Attempt
from runs.engine.records import RunEvent


def add_event(attempt: Attempt, kind: str, actor: str, **data: Any) -> None:
    """Write a line and, once that is committed, let the pages that show the run know. Call it in a transaction that
    locks the attempt's row, as all writers of events do."""
    RunEvent.objects.create(
        run_id=attempt.run_id, attempt=attempt, at=timezone.now(), kind=kind, actor=actor, data=data
    )
    transaction.on_commit(lambda: hints.changed(attempt.run_id))
