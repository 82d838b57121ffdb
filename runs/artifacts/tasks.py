"""Celery's side of the upkeep of the artifact store."""

from __future__ import annotations

from django.utils import timezone

from controlplane.celery import app
from runs.artifacts import upkeep


@app.task(name="artifacts.tend")  # type: ignore[untyped-decorator]  # Celery has no types
def tend() -> None:
    upkeep.tend(timezone.now())
