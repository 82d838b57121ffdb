"""The queue of the worker's tasks, and the progress of a version."""

import json
import logging
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
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

DATASET_TASK, CORPUS_TASK, REFERENCES_TASK = "datasets.validate", "datasets.corpus", "references.work"
"""Celery names of controlplane.catalogue.tasks, which is not imported here: it imports the modules that send."""
WAITS_LONG = timedelta(seconds=10)


@dataclass(frozen=True)
class WorkProgress:
    stage: str
    """The child's name of the stage; before that "waiting" (for a worker) or "starting" (the child)."""
    bytes: int = 0
    of: int = 0
    """All bytes; 0: not known."""
    rows: int = 0
    of_rows: int = 0
    """0: not known."""
    mb_per_s: float = 0.0
    waits: timedelta | None = None
    """Time in the queue; None while it is shorter than WAITS_LONG."""

    @property
    def share(self) -> float | None:
        """0 to 1; None: not known."""
        processed, of = (self.bytes, self.of) if self.of else (self.rows, self.of_rows)
        return min(1.0, processed / of) if of else None


def send_to_worker(version: DatasetVersion) -> None:
    """Queue the version's next step on commit."""
    send_on_commit(DATASET_TASK, version.pk)


def send_on_commit(task: str, *arguments: int) -> None:
    """Send a task to the worker on commit. Without a broker it waits until beat's next task sends it again."""
    transaction.on_commit(partial(_send, task, arguments))


def _send(task: str, arguments: tuple[int, ...]) -> None:
    if not settings.REDIS_URL:
        return  # the demo and tests call the worker directly
    try:
        app.send_task(task, arguments, retry=False)
    except (KombuError, OSError):
        log.warning("No broker to queue %s%s; it is sent again later", task, arguments)


def progress(version: DatasetVersion) -> WorkProgress | None:
    """Read how far the worker is; None if no worker has to process the version."""
    if version.status not in DatasetVersion.AT_WORK:
        return None
    if version.check_started_at is None:
        waited = timezone.now() - (version.queued_at or version.created_at)
        return WorkProgress("waiting", waits=waited if waited > WAITS_LONG else None)
    return read_progress(version.folder)


def read_progress(folder: Path) -> WorkProgress:
    """Read the last progress that the child wrote."""
    try:
        state = json.loads((folder / files.PROGRESS).read_bytes())
    except (OSError, ValueError):
        state = None
    if not isinstance(state, dict):
        return WorkProgress("starting")
    numbers: dict[str, Any] = {
        name: value
        for name in ("bytes", "of", "rows", "of_rows", "mb_per_s")
        if isinstance(value := state.get(name), int | float) and value >= 0
    }
    return WorkProgress(str(state.get("stage", "")), **numbers)
