"""Attempts whose tokens no longer count: their host was revoked, or they handed over all long ago."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils import timezone

from controlplane.catalogue.joining.credentials import revoked_since_dispatch
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.states import FINAL
from workers.contract.wire.joining import REVOKED
from workers.contract.wire.names import EventKind

OUTLIVES = timedelta(days=2)
"""A supervisor hands over completions and logs for a day at most after the end."""


def with_revoked() -> QuerySet[Attempt]:
    """Attempts as `problem` wants them."""
    return Attempt.objects.annotate(revoked=revoked_since_dispatch())


def problem(attempt: Attempt, *, answers_late: bool = False) -> tuple[str, str]:
    """Why the attempt's token no longer counts, and where the error is; ("", "") if it does.

    `answers_late`: the request answers a question that may have been asked long after the end.
    """
    if attempt.revoked:  # type: ignore[attr-defined]  # annotated
        return "The credentials of this attempt's host were revoked: it ends.", REVOKED
    if not answers_late and _ended_long_ago(attempt):
        return "The attempt's token ended: all was handed over long ago.", "attempt"
    return "", ""


def refused(attempts: Iterable[str]) -> set[str]:
    """Those of these attempts that have a problem, by one query."""
    last_line = Exists(RunEvent.objects.filter(attempt=OuterRef("pk"), kind=EventKind.ENDED))
    ended = Q(status__in=FINAL, ended_at__lte=timezone.now() - OUTLIVES) & Q(last_line)
    found = Attempt.objects.filter(pk__in=attempts).filter(Q(revoked_since_dispatch()) | ended)
    return set(found.values_list("pk", flat=True))


def _ended_long_ago(attempt: Attempt) -> bool:
    """Until its last line is stored, the host may still hand over what it has."""
    if attempt.status not in FINAL or attempt.ended_at is None or attempt.ended_at > timezone.now() - OUTLIVES:
        return False
    return RunEvent.objects.filter(attempt=attempt, kind=EventKind.ENDED).exists()
