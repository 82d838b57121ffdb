"""Celery's side of the alerts: a short call into the flow."""

from __future__ import annotations

from django.conf import settings
from kombu.exceptions import KombuError

from controlplane.celery import app
from controlplane.datasets.folders import held
from runs.alerts import delivery


@app.task(name="alerting.deliver")  # type: ignore[untyped-decorator]  # Celery has no types
def deliver() -> None:
    # One at a time: servers that don't answer must not take the worker's last place from the tick.
    with held(settings.DATA_DIR / "alerts.lock") as mine:
        if mine:
            delivery.deliver()
            delivery.forget()


def soon() -> None:
    """Now rather than with the next beat, if the broker is there."""
    if settings.REDIS_URL:
        try:
            deliver.apply_async(retry=False, expires=60)
        except (KombuError, OSError):
            pass  # the beat comes
