"""Storing the pieces of chat answers that a supervisor sends, in ingest's transaction, so each is stored once."""

from __future__ import annotations

from typing import Any

from django.db.models import Value
from django.db.models.functions import Concat

from runs.engine.served.models import Answer
from workers.contract.reports.chat import Finish

_FINISHES = frozenset(Finish)


def take(run_id: str, data: dict[str, Any]) -> None:
    """Store one line of EventKind.ANSWER."""
    answer = Answer.objects.filter(turn__run=run_id, turn__number=data["turn"], model=data["model"], finish="")
    if text := _storable(data["text"]):
        answer.update(text=Concat("text", Value(text)))
    if end := data["end"]:
        why, tokens, seconds = (end.get(name) for name in ("why", "tokens", "seconds"))
        counted = isinstance(tokens, int) and not isinstance(tokens, bool) and 0 <= tokens < 2**31
        timed = isinstance(seconds, int | float) and 0 <= seconds < 1e9
        answer.update(
            finish=why if why in _FINISHES else Finish.ERROR,
            error=_storable(str(end.get("error") or ""))[:1000],
            tokens=tokens if counted else None,
            seconds=float(seconds) if timed else None,
        )


def _storable(text: str) -> str:
    """Replace NULs, which PostgreSQL can't store."""
    return text.replace("\0", "\ufffd")
