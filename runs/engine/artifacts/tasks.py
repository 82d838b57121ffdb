"""The Celery task of the artifact store's upkeep."""

from __future__ import annotations

from django.utils import timezone

from controlplane.catalogue.datasets import worker
from controlplane.celery import app
from runs.engine.artifacts import upkeep


@app.task(name="artifacts.tend")  # type: ignore[untyped-decorator]  # Celery has no types
def reconcile() -> None:
    with worker.slot() as free:  # a store that hangs must not keep the tick waiting
        if free:
            upkeep.reconcile(timezone.now())
