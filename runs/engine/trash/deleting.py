"""Deleting, restoring, and deleting for good before the time is over.

Deleting marks a row: every list and form is without it from then on, its name is free, and nothing of it is lost until
`purge_at`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from controlplane.catalogue.versioned.queries import free_name
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run
from runs.engine.timeline import add_event
from runs.engine.trash.kinds import KINDS, DeletableKind, jobs_of

MARKS = ["deleted_at", "deleted_by", "purge_at"]


class NotDeletable(Exception):
    """It stays; sentences for people."""


class NotRestorable(Exception):
    """It is gone; a sentence for people."""


def delete(kind: DeletableKind, pk: str, user: User) -> Any | None:
    """Mark it and what goes with it. The row, also if it was deleted before, so that a second click does no harm; None:
    there is none. Raises NotDeletable."""
    with transaction.atomic():
        row = _locked(kind, pk)
        if row is None or row.deleted_at is not None:
            return row
        if why := list(kind.obstacles(row)):
            raise NotDeletable(" ".join(why))
        now = timezone.now()
        until = now + timedelta(days=settings.DELETED_KEPT_DAYS)
        for each in (row, *(jobs_of(row) if isinstance(row, Run) else ())):
            each.deleted_at, each.deleted_by, each.purge_at = now, user, until
            each.save(update_fields=MARKS)
        if isinstance(row, Run):
            Attempt.objects.filter(run=row).exclude(resumes_at=None).update(resumes_at=None)
            add_event(row.latest(), "deleted", user.get_username(), until=until.isoformat())
    return row


def restore(kind: DeletableKind, pk: str, user: User) -> tuple[Any, str]:
    """The row, as it was before, and what had to change in words, or "". Raises NotRestorable."""
    with transaction.atomic():
        row = _locked(kind, pk)
        if row is None or (row.deleted_at is not None and not row.can_be_restored(timezone.now())):
            raise NotRestorable(f"This {kind.one} is gone: the time to restore it is over.")
        if row.deleted_at is None:
            return row, ""
        if not isinstance(row, Run):
            return row, _bring_back(kind, row)
        words = ""
        if row.source is not None and row.source.deleted_at is not None:
            raise NotRestorable(f"It worked on a model of {row.source.name}: restore that run, and it is back, too.")
        dataset = row.dataset_version.dataset
        if dataset.deleted_at is not None:
            words = f"Its dataset is back, too. {_bring_back(KINDS['dataset'], dataset)}".strip()
        for each in (*_jobs_deleted_with(row), row):
            _unmark(each)
        add_event(row.latest(), "restored", user.get_username())
    return row, words


def for_good(kind: DeletableKind, pk: str) -> bool:
    """End the time in which it can be restored: what it holds is deleted within two minutes, if its hosts are in reach.
    False: there is nothing to end."""
    now = timezone.now()
    with transaction.atomic():
        row = _locked(kind, pk)
        if row is None or row.deleted_at is None:
            return False
        for each in (row, *(_jobs_deleted_with(row) if isinstance(row, Run) else ())):
            if each.can_be_restored(now):
                each.purge_at = now
                each.save(update_fields=["purge_at"])
    return True


def deleted(most: int | None = None) -> list[tuple[DeletableKind, Any]]:
    """What was deleted and is still there, of all kinds, the newest first."""
    found = [(kind, row) for kind in KINDS.values() for row in _deleted(kind).order_by("-deleted_at")[:most]]
    return sorted(found, key=lambda one: one[1].deleted_at, reverse=True)[:most]


def _deleted(kind: DeletableKind) -> QuerySet[Any]:
    """Without jobs that were deleted with their run."""
    rows: QuerySet[Any] = kind.model.every.exclude(deleted_at=None).select_related("deleted_by")
    return rows.exclude(source__deleted_at=F("deleted_at")) if kind.model is Run else rows


def _locked(kind: DeletableKind, pk: str) -> Any | None:
    """The row, deleted or not. Of a run the latest attempt, too, as whoever resumes it or writes an event does."""
    if kind.model is Run:
        Attempt.objects.select_for_update().filter(run=pk).order_by("-number").first()
    return kind.model.every.select_for_update().filter(pk=pk).first()


def _bring_back(kind: DeletableKind, row: Any) -> str:
    """Under the next free name, if somebody has taken its own meanwhile; then say so."""
    before = row.name
    if kind.names_are_unique:
        row.name = free_name(kind.model, before)
    _unmark(row, "name")
    return "" if row.name == before else f"The name “{before}” was taken meanwhile, so it is “{row.name}” now."


def _unmark(row: Any, *columns: str) -> None:
    row.deleted_at = row.deleted_by = row.purge_at = None
    row.save(update_fields=[*MARKS, *columns])


def _jobs_deleted_with(run: Run) -> list[Run]:
    return jobs_of(run, Run.every.filter(deleted_at=run.deleted_at))
