"""Celery's side of the checks of reference answers: sent when one is queued, and by beat for those left over."""

from __future__ import annotations

from controlplane.catalogue.references import worker
from controlplane.catalogue.references.starting import TASK
from controlplane.celery import app


@app.task(name=TASK)  # type: ignore[untyped-decorator]  # celery has no types
def work() -> None:
    worker.work()
