"""How far the worker is with a version, as its child says and as the database knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.utils import timezone

from controlplane.datasets.models import DatasetVersion
from controlplane.datasets.reading import files

WAITS_LONG = timedelta(seconds=10)


@dataclass(frozen=True)
class Progress:
    stage: str
    """As the child names it; "waiting" before a worker has taken it up, "starting" before the child has said a word."""
    done: int = 0
    of: int = 0
    """Bytes; 0: not known."""
    rows: int = 0
    mb_per_s: float = 0.0
    waits: timedelta | None = None
    """How long nobody has taken it up, once that is longer than it should be."""

    @property
    def share(self) -> float | None:
        """0 to 1; None: not known."""
        return min(1.0, self.done / self.of) if self.of > 0 else None


def progress(version: DatasetVersion) -> Progress | None:
    """None: no worker has anything to do."""
    if version.status not in DatasetVersion.AT_WORK:
        return None
    if version.check_started_at is None:
        waited = timezone.now() - (version.queued_at or version.created_at)
        return Progress("waiting", waits=waited if waited > WAITS_LONG else None)
    try:
        told = json.loads((version.folder / files.PROGRESS).read_bytes())
    except (OSError, ValueError):
        told = None
    if not isinstance(told, dict):
        return Progress("starting")
    done, of, rows = (_whole(told.get(name)) for name in ("bytes", "of", "rows"))
    pace = told.get("mb_per_s")
    return Progress(str(told.get("stage", "")), done, of, rows, float(pace) if isinstance(pace, int | float) else 0.0)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
