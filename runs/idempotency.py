"""What a page sends twice is made once: by a double click, a reload, two tabs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from django.db import IntegrityError, models, transaction

from runs.scheduling.limits import QueueFull

M = TypeVar("M", bound=models.Model)


def once(rows: models.QuerySet[M], key: str | None, make: Callable[[], M]) -> tuple[M, bool]:
    """The row with this launch_key, and whether this call made it; without a key each call makes one.

    `make` runs in the transaction, and stores the key in its row: a unique column decides between two at once.
    """
    try:
        with transaction.atomic():
            if key and (earlier := rows.filter(launch_key=key).first()):
                return earlier, False
            return make(), True
    except (IntegrityError, QueueFull):
        # The other click was first, and may have taken the last place in the queue; any other cause goes on up.
        if key and (first := rows.filter(launch_key=key).first()):
            return first, False
        raise
