"""Idempotent creation: a double click, a reload or a second tab doesn't create a second row."""

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeVar

from django.db import IntegrityError, models, transaction

from controlplane.platform.accounts.models import User
from runs.engine.models import ProfileTrial, Run, RunGroup
from runs.engine.scheduling import launching
from runs.engine.scheduling.limits import QueueFull
from runs.engine.spec import LaunchRequest

FORGOTTEN_AFTER = timedelta(days=7)
"""Age at which a key is cleared, since nobody repeats a request after a week."""
KEYS_AT_ONCE = 1000
"""Maximum number of keys cleared per table and round."""
M = TypeVar("M", bound=models.Model)


def key_of_api(user: User, header_value: str) -> str | None:
    """Derive a launch_key, distinct for each user, from an Idempotency-Key header; return None without a header."""
    return hashlib.sha256(repr(("api", user.pk, header_value)).encode()).hexdigest() if header_value else None


def once(rows: models.QuerySet[M], key: str | None, make: Callable[[], M]) -> tuple[M, bool]:
    """Get or create the row with this launch_key. Return the row, and whether this call created it. Without a key,
    always create one. `make` runs in the transaction and must store the key in the new row, since a unique column
    decides between concurrent calls."""
    try:
        with transaction.atomic():
            if key and (earlier_row := rows.filter(launch_key=key).first()):
                return earlier_row, False
            return make(), True
    except (IntegrityError, QueueFull):
        # The other request was first and may have filled the queue; other causes are raised.
        if key and (first_row := rows.filter(launch_key=key).first()):
            return first_row, False
        raise


def launch_once(request: LaunchRequest, user: User, key: str | None) -> tuple[Run, bool]:
    """Launch a run and return (run, True). If an earlier launch used this key, return (its run, False)."""

    def make() -> Run:
        run = launching.submit(request, user=user)
        Run.objects.filter(pk=run.pk).update(launch_key=key)
        return run

    return once(Run.every.all(), key, make)


def forget(now: datetime) -> None:
    """Clear old keys, one row at a time, because a statement for many rows could deadlock with writers of lines."""
    for rows in (Run.every.all(), RunGroup.objects.all(), ProfileTrial.objects.all()):
        old_rows = rows.filter(launch_key__isnull=False, created_at__lt=now - FORGOTTEN_AFTER).order_by("created_at")
        for row in old_rows.only("pk")[:KEYS_AT_ONCE]:
            rows.filter(pk=row.pk).update(launch_key=None)
