"""Attempts whose tokens are no longer valid because their host was revoked or handed over everything long ago."""

from datetime import timedelta

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.catalogue.joining.credentials import revoked_since_dispatch
from runs.engine.models import Attempt
from runs.engine.records import RunEvent
from runs.engine.states import FINAL
from workers.contract.wire.joining import REVOKED
from workers.contract.wire.names import EventKind

VALID_AFTER_END = timedelta(days=2)
"""Time for which a token is valid after its attempt's end; supervisors hand over completions and logs within a day."""


def with_revoked() -> QuerySet[Attempt]:
    """List the attempts with the annotation `revoked`, which `problem` needs."""
    return Attempt.objects.annotate(revoked=revoked_since_dispatch())


def problem(attempt: Attempt, *, answers_late: bool = False) -> tuple[str, str]:
    """Return an explanation of why the attempt's token is no longer valid, and the error's field; ("", "") if it is
    valid. With `answers_late`, the token doesn't expire, since the control plane may have asked the host for something
    long after the end."""
    if attempt.revoked:  # type: ignore[attr-defined]  # annotated
        return "The credentials of this attempt's host were revoked, so the attempt must end.", REVOKED
    if not answers_late and _ended_long_ago(attempt):
        return "The attempt's token has expired: everything was handed over long ago.", "attempt"
    return "", ""


def _ended_long_ago(attempt: Attempt) -> bool:
    """Return whether the attempt ended more than VALID_AFTER_END ago and its last line is stored."""
    if attempt.status not in FINAL or attempt.ended_at is None or attempt.ended_at > timezone.now() - VALID_AFTER_END:
        return False
    return RunEvent.objects.filter(attempt=attempt, kind=EventKind.ENDED).exists()
