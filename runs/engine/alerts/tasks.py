"""The Celery tasks of alerts."""

from contextlib import suppress

from django.conf import settings
from kombu.exceptions import KombuError

from controlplane.catalogue.datasets.folders import try_lock
from controlplane.celery import app
from runs.engine.alerts import delivery


@app.task(name="alerting.deliver")  # type: ignore[untyped-decorator]  # Celery has no types
def deliver() -> None:
    # One process at a time: unresponsive servers must not block the worker's last slot, which the tick needs.
    with try_lock(settings.DATA_DIR / "alerts.lock") as has_lock:
        if has_lock:
            delivery.deliver()
            delivery.forget()


def queue_delivery() -> None:
    """Queue a delivery now instead of waiting for the next beat, if the broker is available."""
    if settings.REDIS_URL:
        with suppress(KombuError, OSError):  # the next beat delivers
            deliver.apply_async(retry=False, expires=60)
