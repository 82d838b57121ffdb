"""Tasks sent to the worker, and the worker's progress on a version."""

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
LONG_WAIT = timedelta(seconds=10)


@dataclass(frozen=True)
class WorkProgress:
    stage: str
    """Stage as the child names it, or "waiting" (for a worker) or "starting" (the child) before that."""
    bytes: int = 0
    of: int = 0
    """Total bytes; 0 if unknown."""
    rows: int = 0
    of_rows: int = 0
    """Total rows; 0 if unknown."""
    mb_per_s: float = 0.0
    waits: timedelta | None = None
    """Time in the queue; None while it is shorter than LONG_WAIT."""

    @property
    def share(self) -> float | None:
        """Completed share, from 0 to 1, or None if unknown."""
        processed, total = (self.bytes, self.of) if self.of else (self.rows, self.of_rows)
        return min(1.0, processed / total) if total else None


def send_to_worker(version: DatasetVersion) -> None:
    """Queue the version's next step on commit."""
    send_on_commit(DATASET_TASK, version.pk)


def send_on_commit(task: str, *arguments: int) -> None:
    """Send a task to the worker on commit. If the broker is down, a periodic task sends it again later."""
    transaction.on_commit(partial(_send, task, arguments))


def _send(task: str, arguments: tuple[int, ...]) -> None:
    if not settings.REDIS_URL:
        return  # the demo and tests call the worker directly
    try:
        app.send_task(task, arguments, retry=False)
    except (KombuError, OSError):
        log.warning("The broker is down; %s%s will be sent again later", task, arguments)


def progress(version: DatasetVersion) -> WorkProgress | None:
    """Return the worker's progress on a version, or None if the version has no step to be processed."""
    if version.status not in DatasetVersion.AT_WORK:
        return None
    if version.check_started_at is None:
        time_in_queue = timezone.now() - (version.queued_at or version.created_at)
        return WorkProgress("waiting", waits=time_in_queue if time_in_queue > LONG_WAIT else None)
    return read_progress(version.folder)


def read_progress(folder: Path) -> WorkProgress:
    """Return the latest progress that the child wrote."""
    try:
        content = json.loads((folder / files.PROGRESS).read_bytes())
    except (OSError, ValueError):
        content = None
    if not isinstance(content, dict):
        return WorkProgress("starting")
    numbers: dict[str, Any] = {
        name: value
        for name in ("bytes", "of", "rows", "of_rows", "mb_per_s")
        if isinstance(value := content.get(name), int | float) and value >= 0
    }
    return WorkProgress(str(content.get("stage", "")), **numbers)
