"""A version's place in the worker's queue: sends it there, and says how far the worker is."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import KombuError

from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.celery import app

log = logging.getLogger(__name__)

TASK = "datasets.validate"
"""tasks.validate_version by its Celery name: nothing that sends work imports what does it."""
WAITS_LONG = timedelta(seconds=10)


@dataclass(frozen=True)
class WorkProgress:
    stage: str
    """The child's name for it; "waiting" before a worker has started it, "starting" before the child's first report."""
    done: int = 0
    of: int = 0
    """Bytes; 0: not known."""
    rows: int = 0
    of_rows: int = 0
    """0: not known."""
    mb_per_s: float = 0.0
    waits: timedelta | None = None
    """The time in the queue, once that is longer than it should be."""

    @property
    def share(self) -> float | None:
        """0 to 1; None: not known."""
        done, of = (self.done, self.of) if self.of else (self.rows, self.of_rows)
        return min(1.0, done / of) if of else None


def send_to_worker(version: DatasetVersion) -> None:
    """Queue the version's next step on commit. Without a broker it waits until the sweep sends it again."""
    pk = version.pk

    def send() -> None:
        if not settings.REDIS_URL:
            log.debug(
                "REDIS_URL is not set: dataset version %s waits", pk
            )  # the demo and tests call the worker directly
            return
        try:
            app.send_task(TASK, (pk,), retry=False)
        except (KombuError, OSError):
            log.warning("No broker to queue dataset version %s; it is sent again later", pk)

    transaction.on_commit(send)


def progress(version: DatasetVersion) -> WorkProgress | None:
    """None: no worker has anything to do."""
    if version.status not in DatasetVersion.AT_WORK:
        return None
    if version.check_started_at is None:
        waited = timezone.now() - (version.queued_at or version.created_at)
        return WorkProgress("waiting", waits=waited if waited > WAITS_LONG else None)
    return read_progress(version.folder)


def read_progress(folder: Path) -> WorkProgress:
    """The progress that the child wrote last."""
    try:
        state = json.loads((folder / files.PROGRESS).read_bytes())
    except (OSError, ValueError):
        state = None
    if not isinstance(state, dict):
        return WorkProgress("starting")
    done, of, rows, of_rows = (_whole(state.get(name)) for name in ("bytes", "of", "rows", "of_rows"))
    pace = state.get("mb_per_s")
    mb_per_s = float(pace) if isinstance(pace, int | float) else 0.0
    return WorkProgress(str(state.get("stage", "")), done, of, rows, of_rows, mb_per_s)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
