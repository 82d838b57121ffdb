"""Celery's side of the checks of reference answers: sent when one is queued, and by beat for those left over."""

from __future__ import annotations

from controlplane.celery import app
from controlplane.references import worker
from controlplane.references.starting import TASK


@app.task(name=TASK)  # type: ignore[untyped-decorator]  # celery has no types
def work() -> None:
    worker.work()
