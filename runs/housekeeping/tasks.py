"""The control plane's Celery tasks for runs, which are short and idempotent and only call other modules."""

import logging
from collections.abc import Callable
from datetime import datetime
from importlib import import_module

from django.conf import settings
from django.utils import timezone

from controlplane.catalogue.datasets import worker
from controlplane.catalogue.joining import codes
from controlplane.celery import app
from controlplane.platform.accounts import api_tokens
from controlplane.platform.http import outage
from runs.engine import idempotency
from runs.engine.artifacts import upkeep
from runs.engine.machines import requests
from runs.engine.monitoring import measured
from runs.engine.monitoring.readiness import TICK_FILE
from runs.engine.scheduling import dispatching
from runs.engine.sharing import links
from runs.engine.trash import purging
from runs.housekeeping import tick as runs_tick

log = logging.getLogger(__name__)


@app.task(name="runs.tick")  # type: ignore[untyped-decorator]  # Celery has no types
def tick() -> None:
    with measured.measuring(measured.MeasuredDuration.TICK):
        runs_tick.tick(timezone.now())
    measured.sums.flush()  # this process may measure nothing for a while
    (settings.DATA_DIR / TICK_FILE).touch()


@app.task(name="runs.expired")  # type: ignore[untyped-decorator]
def forget_expired() -> None:
    forget_all(timezone.now())


@app.task(name="runs.purge")  # type: ignore[untyped-decorator]
def purge() -> None:
    purging.purge(timezone.now())


@app.task(name="runs.dispatch")  # type: ignore[untyped-decorator]
def dispatch() -> None:
    dispatching.dispatch_ready()


@app.task(name="machines.tend")  # type: ignore[untyped-decorator]
def reconcile_machines() -> None:
    requests.reconcile(timezone.now())  # apart from the tick, since engines answer slowly


@app.task(name="artifacts.tend")  # type: ignore[untyped-decorator]
def reconcile_artifacts() -> None:
    with worker.slot() as has_slot:  # a store that hangs must not keep the tick waiting
        if has_slot:
            upkeep.reconcile(timezone.now())


def forget_all(now: datetime) -> None:
    """Delete expired sessions, join codes, API tokens and links to runs, and clear expired launch keys."""
    steps: tuple[Callable[[datetime], object], ...] = (
        # As Django's `clearsessions` command does, by Django's own clock.
        lambda now: import_module(settings.SESSION_ENGINE).SessionStore.clear_expired(),
        codes.forget,
        api_tokens.forget,
        idempotency.forget,
        links.forget,
    )
    for step in steps:
        try:
            step(now)
        except Exception as error:  # loop boundary: a failure in one table must not keep the others
            if outage.is_away(error):
                raise
            log.exception("expired rows could not be deleted")
