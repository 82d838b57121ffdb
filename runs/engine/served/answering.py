"""Pieces of answers from a supervisor into the rows of a chat; part of ingest's transaction, so each comes once."""

from __future__ import annotations

from typing import Any

from django.db.models import Value
from django.db.models.functions import Concat

from runs.engine.served.models import Answer
from workers.contract.reports.chat import Finish

_FINISHES = frozenset(Finish)


def take(run_id: str, data: dict[str, Any]) -> None:
    """One line of EventKind.ANSWER."""
    answer = Answer.objects.filter(turn__run=run_id, turn__number=data["turn"], model=data["model"], finish="")
    end = data["end"]
    if text := _storable(data["text"]):
        answer.update(text=Concat("text", Value(text)))
    if end:
        why = end.get("why")
        answer.update(
            finish=why if why in _FINISHES else Finish.ERROR,
            error=_storable(str(end.get("error") or ""))[:1000],
            tokens=_whole(end.get("tokens")),
            seconds=_number(end.get("seconds")),
        )


def _storable(text: str) -> str:
    """PostgreSQL holds no NUL."""
    return text.replace("\0", "\ufffd")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31 else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else None
