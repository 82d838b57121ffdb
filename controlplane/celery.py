"""The control plane's Celery app, with the schedule of its tasks. Runs never run inside a task."""

import os
import signal
import time
from datetime import UTC, datetime, timedelta

from celery import Celery
from celery.schedules import schedule
from celery.signals import beat_embedded_init
from django.conf import settings

from workers.contract.wire.names import broker_url
from workers.contract.wire.processes import die_with_parent

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
# Otherwise Celery runs Django's checks, which import every page and the API: more than a second of each start, and
# 35 MB, for results that it ignores.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

_WORKER_PID = os.getpid()
"""Process id of the worker, which imports this module; its beat is a fork of it."""
_STARTED, _STARTED_AT = time.monotonic(), datetime.now(UTC)


class Every(schedule):  # type: ignore[misc]  # Celery has no types
    """Interval on a monotonic clock, so that setting the clock back by an hour doesn't stop the tick for an hour."""

    def now(self) -> datetime:
        return _STARTED_AT + timedelta(seconds=time.monotonic() - _STARTED)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Return the time until the task is due again. Beat stores the last run in a file; a time in the future comes
        from another clock, and the task is due now."""
        now = self.now()
        if last_run_at > now:
            return timedelta(0)
        remaining: timedelta = last_run_at + self.run_every - now
        return remaining


app = Celery("controlplane")
app.conf.update(
    broker_url=broker_url(os.environ.get("REDIS_URL", "")),
    broker_connection_retry_on_startup=True,
    # Without a broker a send in the web must fail at once (kombu would retry forever). The worker's connection has its
    # own retries.
    broker_transport_options={"max_retries": 0, "socket_connect_timeout": 2},
    task_default_queue="control",
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_schedule={
        "tick": {"task": "runs.tick", "schedule": Every(settings.TICK_S), "options": {"expires": settings.TICK_S}},
        "expired": {"task": "runs.expired", "schedule": Every(3600.0), "options": {"expires": 3600}},
        "trash": {"task": "runs.purge", "schedule": Every(60.0), "options": {"expires": 60}},
        "datasets": {"task": "datasets.sweep", "schedule": Every(30.0), "options": {"expires": 30}},
        "datasets in the store": {"task": "datasets.store", "schedule": Every(30.0), "options": {"expires": 30}},
        "references": {"task": "references.work", "schedule": Every(30.0), "options": {"expires": 30}},
        "artifacts": {"task": "artifacts.tend", "schedule": Every(30.0), "options": {"expires": 30}},
        "joining": {"task": "joining.tend", "schedule": Every(15.0), "options": {"expires": 15}},
        "machines": {"task": "machines.tend", "schedule": Every(10.0), "options": {"expires": 10}},
        "alerts": {
            "task": "alerting.deliver",
            "schedule": Every(settings.TICK_S),
            "options": {"expires": settings.TICK_S},
        },
    },
)
app.autodiscover_tasks(["runs.housekeeping", "controlplane.catalogue", "runs.engine.alerts"])


@beat_embedded_init.connect  # type: ignore[untyped-decorator]
def _end_with_the_worker(**kwargs: object) -> None:
    """Make the beat die with its worker.

    A worker that ends sends its beat a single SIGTERM. A beat that has just been forked still has the worker's handler,
    would ignore the signal, and would run forever without a worker.
    """
    die_with_parent(_WORKER_PID, signal.SIGKILL)
