"""The control plane's Celery tasks for runs: short, idempotent, no logic of their own."""

from __future__ import annotations

from django.conf import settings
from django.utils import timezone

from controlplane.celery import app
from runs.engine.monitoring import measured
from runs.engine.monitoring.readiness import TICKED
from runs.engine.scheduling import launching
from runs.engine.trash import purging
from runs.housekeeping import expired
from runs.housekeeping import tick as runs_tick


@app.task(name="runs.tick")  # type: ignore[untyped-decorator]  # Celery has no types
def tick() -> None:
    with measured.measuring(measured.MeasuredDuration.TICK):
        runs_tick.tick(timezone.now())
    measured.flush()
    (settings.DATA_DIR / TICKED).touch()


@app.task(name="runs.expired")  # type: ignore[untyped-decorator]
def forget_expired() -> None:
    expired.forget_all(timezone.now())


@app.task(name="runs.purge")  # type: ignore[untyped-decorator]
def purge() -> None:
    purging.purge(timezone.now())


@app.task(name="runs.dispatch")  # type: ignore[untyped-decorator]
def dispatch() -> None:
    launching.dispatch_ready()
