"""Celery's side of machines: beat looks after them, apart from the tick, since engines answer slowly."""

from __future__ import annotations

from django.utils import timezone

from controlplane.celery import app
from runs.engine.machines import requests


@app.task(name="machines.tend")  # type: ignore[untyped-decorator]  # celery has no types
def reconcile() -> None:
    requests.reconcile(timezone.now())
