"""Archives rows with a column `archived_at`: they are no longer offered, and whatever uses them keeps working."""

from __future__ import annotations

from django.db.models import Model
from django.utils import timezone

from controlplane.platform.activity.recording import recorded


def set_archived(row: Model, archived: bool, *, subject: Model | None = None, act: str) -> bool:
    """Archive or unarchive a row, recorded as `act` on `subject` (by default the row). False: nothing changed."""
    rows = type(row)._default_manager.filter(pk=row.pk, archived_at__isnull=archived)
    return recorded(rows.update(archived_at=timezone.now() if archived else None), subject or row, act)
