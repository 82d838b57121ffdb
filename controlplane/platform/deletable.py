"""Rows that people can archive, or delete and restore for a while. runs.engine.trash deletes them permanently."""

from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from controlplane.platform.activity.recording import recorded

ModelT = TypeVar("ModelT", bound=models.Model)


class Kept(models.Manager[ModelT]):
    """Manager that omits deleted rows."""

    def get_queryset(self) -> models.QuerySet[ModelT]:
        return super().get_queryset().filter(deleted_at=None)


class Deletable(models.Model):
    """Base of models whose rows can be deleted and restored. `objects` omits deleted rows; `every` includes them."""

    deleted_at = models.DateTimeField(null=True)
    deleted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    purge_at = models.DateTimeField(null=True, db_index=True)
    """Time at which the row will be deleted permanently; until then it can be restored."""

    class Meta:
        abstract = True

    def can_be_restored(self, now: datetime) -> bool:
        return self.purge_at is not None and self.purge_at > now


def unique_name(name: str) -> models.UniqueConstraint:
    """Return a constraint that makes names unique among rows that aren't deleted."""
    return models.UniqueConstraint(fields=["name"], condition=Q(deleted_at=None), name=name)


def set_archived(row: models.Model, archived: bool, *, subject: models.Model | None = None, act: str) -> bool:
    """Archive or unarchive a row with `archived_at`, and return whether anything changed.

    An archived row is no longer offered; whatever uses it keeps working. The change is recorded as `act` on `subject`,
    by default the row.
    """
    rows = type(row)._default_manager.filter(pk=row.pk, archived_at__isnull=archived)
    return recorded(rows.update(archived_at=timezone.now() if archived else None), subject or row, act)
