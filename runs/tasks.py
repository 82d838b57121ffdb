"""The control plane's Celery tasks for runs: short, idempotent, no logic of their own."""

from __future__ import annotations

from django.utils import timezone

from controlplane.celery import app
from runs import tick as runs_tick
from runs.scheduling import launching


@app.task(name="runs.tick")  # type: ignore[untyped-decorator]  # Celery has no types
def tick() -> None:
    runs_tick.tick(timezone.now())


@app.task(name="runs.dispatch")  # type: ignore[untyped-decorator]
def dispatch() -> None:
    launching.dispatch_ready()
