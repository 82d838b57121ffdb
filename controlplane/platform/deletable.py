"""Rows that a person deletes and can restore for a while: marked first, deleted for good later (runs.engine.trash)."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from django.conf import settings
from django.db import models
from django.db.models import Q

ModelT = TypeVar("ModelT", bound=models.Model)


class Kept(models.Manager[ModelT]):
    """Manager without deleted rows."""

    def get_queryset(self) -> models.QuerySet[ModelT]:
        return super().get_queryset().filter(deleted_at=None)


class Deletable(models.Model):
    """A model of it has `objects`, a Kept, and `every`, which has the deleted rows as well."""

    deleted_at = models.DateTimeField(null=True)
    deleted_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    purge_at = models.DateTimeField(null=True, db_index=True)
    """When it is deleted for good; until then it can be restored."""

    class Meta:
        abstract = True

    def can_be_restored(self, now: datetime) -> bool:
        return self.purge_at is not None and self.purge_at > now


def unique_name(name: str) -> models.UniqueConstraint:
    """No two rows have the same name; that of a deleted one is free."""
    return models.UniqueConstraint(fields=["name"], condition=Q(deleted_at=None), name=name)
