"""Deleting and restoring of rows, and early purges. Deleting only marks a row: lists and forms omit it, its name may be
used again, and its data is kept until `purge_at`."""

from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone

from controlplane.catalogue.versioned.queries import with_free_name
from controlplane.platform.accounts.models import User
from runs.engine.models import Attempt, Run
from runs.engine.spec import mixed_versions
from runs.engine.timeline import add_event
from runs.engine.trash.kinds import KINDS, DeletableKind, jobs_of

DELETION_COLUMNS = ["deleted_at", "deleted_by", "purge_at"]


class NotDeletable(Exception):
    """The row can't be deleted; the message says why."""


class NotRestorable(Exception):
    """The row can't be restored; the message says why."""


def delete(kind: DeletableKind, pk: str, user: User) -> Any | None:
    """Mark a row, and a run's jobs, as deleted. Return the row, or None if it doesn't exist. A row that is already
    deleted is returned unchanged, so a second click does no harm. Raises NotDeletable if something still needs the
    row."""
    with transaction.atomic():
        row = _lock_row(kind, pk)
        if row is None or row.deleted_at is not None:
            return row
        if problems := list(kind.obstacles(row)):
            raise NotDeletable(" ".join(problems))
        now = timezone.now()
        until = now + timedelta(days=settings.DELETED_KEPT_DAYS)
        for marked_row in (row, *(jobs_of(row) if isinstance(row, Run) else ())):
            marked_row.deleted_at, marked_row.deleted_by, marked_row.purge_at = now, user, until
            marked_row.save(update_fields=DELETION_COLUMNS)
        if isinstance(row, Run):
            Attempt.objects.filter(run=row).exclude(resumes_at=None).update(resumes_at=None)
            add_event(row.latest(), "deleted", user.get_username(), until=until.isoformat())
    return row


def restore(kind: DeletableKind, pk: str, user: User) -> tuple[Any, str]:
    """Restore a row. Return it with a sentence on what else has changed, such as its name, or "". Raises NotRestorable
    if the row is gone, or if it is a job on a model of a deleted run."""
    with transaction.atomic():
        row = _lock_row(kind, pk)
        if row is None or (row.deleted_at is not None and not row.can_be_restored(timezone.now())):
            raise NotRestorable(f"This {kind.label} is gone and can no longer be restored.")
        if row.deleted_at is None:
            return row, ""
        if not isinstance(row, Run):
            return row, _bring_back(kind, row)
        changes = ""
        if row.source is not None and row.source.deleted_at is not None:
            raise NotRestorable(
                f"It used a model of {row.source.name}. Restore that run, which also restores this one."
            )
        for version in mixed_versions(row):
            if version is not None and version.dataset.deleted_at is not None:
                changes = f"Its dataset was restored as well. {_bring_back(KINDS['dataset'], version.dataset)}".strip()
        for marked_row in (*_jobs_deleted_with(row), row):
            _unmark(marked_row)
        add_event(row.latest(), "restored", user.get_username())
    return row, changes


def purge_now(kind: DeletableKind, pk: str) -> bool:
    """End the time in which a deleted row can be restored. Its data is deleted within two minutes if its hosts are
    reachable. Return False if the row isn't marked as deleted."""
    now = timezone.now()
    with transaction.atomic():
        row = _lock_row(kind, pk)
        if row is None or row.deleted_at is None:
            return False
        for marked_row in (row, *(_jobs_deleted_with(row) if isinstance(row, Run) else ())):
            if marked_row.can_be_restored(now):
                marked_row.purge_at = now
                marked_row.save(update_fields=["purge_at"])
    return True


def deleted_rows(limit: int | None = None) -> list[tuple[DeletableKind, Any]]:
    """List the deleted rows of all kinds that are not purged yet, most recently deleted first."""
    rows = [(kind, row) for kind in KINDS.values() for row in _deleted(kind).order_by("-deleted_at")[:limit]]
    return sorted(rows, key=lambda pair: pair[1].deleted_at, reverse=True)[:limit]


def _deleted(kind: DeletableKind) -> QuerySet[Any]:
    """List the deleted rows of a kind, except jobs that were deleted with their run."""
    rows: QuerySet[Any] = kind.model.every.exclude(deleted_at=None).select_related("deleted_by")
    return rows.exclude(source__deleted_at=F("deleted_at")) if kind.model is Run else rows


def _lock_row(kind: DeletableKind, pk: str) -> Any | None:
    """Lock a row, deleted or not, and return it; for a run, first lock its latest attempt, as resumes do."""
    if kind.model is Run:
        Attempt.objects.select_for_update().filter(run=pk).order_by("-number").first()
    return kind.model.every.select_for_update().filter(pk=pk).first()


def _bring_back(kind: DeletableKind, row: Any) -> str:
    """Restore a row, under the next free name if its name is now taken. Return a sentence about the new name, or ""."""
    old_name = row.name

    def save(name: str) -> None:
        row.name = name
        _unmark(row, "name")

    with_free_name(kind.model, old_name, save)
    return (
        "" if row.name == old_name else f"The name “{old_name}” is now used by another one, so it became “{row.name}”."
    )


def _unmark(row: Any, *columns: str) -> None:
    row.deleted_at = row.deleted_by = row.purge_at = None
    row.save(update_fields=[*DELETION_COLUMNS, *columns])


def _jobs_deleted_with(run: Run) -> list[Run]:
    return jobs_of(run, Run.every.filter(deleted_at=run.deleted_at))
