"""The control plane's Celery tasks for runs: short, idempotent, no logic of their own."""

from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from controlplane.celery import app
from runs import tick as runs_tick
from runs.scheduling import launching

TICKED = "ticked"
"""A file in the data folder, whose age tells a container's health check whether beat and worker work."""


@app.task(name="runs.tick")  # type: ignore[untyped-decorator]  # Celery has no types
def tick() -> None:
    runs_tick.tick(timezone.now())
    (settings.DATA_DIR / TICKED).touch()


@app.task(name="runs.dispatch")  # type: ignore[untyped-decorator]
def dispatch() -> None:
    launching.dispatch_ready()
