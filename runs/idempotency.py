"""Idempotent creation: a double click, a reload or a second tab creates no second row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, models, transaction

from controlplane.accounts.models import User
from runs.models import Run
from runs.scheduling import launching
from runs.scheduling.limits import QueueFull
from runs.spec import LaunchRequest

M = TypeVar("M", bound=models.Model)


def once(rows: models.QuerySet[M], key: str | None, make: Callable[[], M]) -> tuple[M, bool]:
    """Get or create the row with this launch_key; True if this call created it. Without a key, always create.

    `make` runs in the transaction and must store the key in its row: a unique column decides between two concurrent
    calls.
    """
    try:
        with transaction.atomic():
            if key and (earlier := rows.filter(launch_key=key).first()):
                return earlier, False
            return make(), True
    except (IntegrityError, QueueFull):
        # The other request was first and may have taken the last place in the queue; other causes are raised.
        if key and (first := rows.filter(launch_key=key).first()):
            return first, False
        raise


def launch_once(request: LaunchRequest, user: User, key: str | None) -> tuple[Run, bool]:
    """Launch a run; with the key of an earlier launch, that run and False."""

    def make() -> Run:
        run = launching.submit(request, user=user)
        Run.objects.filter(pk=run.pk).update(launch_key=key)
        return run

    return once(Run.objects.all(), key, make)
