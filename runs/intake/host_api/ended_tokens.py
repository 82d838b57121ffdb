"""Attempts whose tokens are no longer valid: their host was revoked, or they handed over everything long ago."""

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
"""A token's validity after the end; a supervisor hands over completions and logs for at most a day."""


def with_revoked() -> QuerySet[Attempt]:
    """Find attempts with the annotation `revoked`, as `problem` needs it."""
    return Attempt.objects.annotate(revoked=revoked_since_dispatch())


def problem(attempt: Attempt, *, answers_late: bool = False) -> tuple[str, str]:
    """Explain why the attempt's token is no longer valid, with the error's field; ("", "") if it is valid.

    `answers_late`: the request answers a question that may have been asked long after the end.
    """
    if attempt.revoked:  # type: ignore[attr-defined]  # annotated
        return "The credentials of this attempt's host were revoked, so the attempt must end.", REVOKED
    if not answers_late and _ended_long_ago(attempt):
        return "The attempt's token has expired: everything was handed over long ago.", "attempt"
    return "", ""


def refused(attempts: Iterable[str]) -> set[str]:
    """Find the attempts, by id, whose tokens are invalid, by one query."""
    last_line = Exists(RunEvent.objects.filter(attempt=OuterRef("pk"), kind=EventKind.ENDED))
    ended = Q(status__in=FINAL, ended_at__lte=timezone.now() - OUTLIVES) & Q(last_line)
    invalid = Attempt.objects.filter(pk__in=attempts).filter(Q(revoked_since_dispatch()) | ended)
    return set(invalid.values_list("pk", flat=True))


def _ended_long_ago(attempt: Attempt) -> bool:
    """Check whether the token has outlived its attempt: the host may hand over lines until the last one is stored."""
    if attempt.status not in FINAL or attempt.ended_at is None or attempt.ended_at > timezone.now() - OUTLIVES:
        return False
    return RunEvent.objects.filter(attempt=attempt, kind=EventKind.ENDED).exists()
