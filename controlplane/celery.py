"""The control plane's own Celery app: dataset validation and the tick. Runs are never inside a task."""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime, timedelta

from celery import Celery
from celery.schedules import schedule
from celery.signals import beat_embedded_init
from django.conf import settings

from workers.contract import broker_url
from workers.contract.tied import end_with

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

_WORKER = os.getpid()
"""Of the worker's own process, where this is imported; the beat in it is a fork."""
_STARTED, _STARTED_AT = time.monotonic(), datetime.now(UTC)


class Every(schedule):  # type: ignore[misc]  # Celery has no types
    """So often by a clock that can't be set: one set back by an hour would leave us without a tick for that hour."""

    def now(self) -> datetime:
        return _STARTED_AT + timedelta(seconds=time.monotonic() - _STARTED)

    def remaining_estimate(self, last_run_at: datetime) -> timedelta:
        """Beat keeps the last run in a file; one of the future is that of an earlier beat's clock."""
        now = self.now()
        if last_run_at > now:
            return timedelta(0)
        remaining: timedelta = last_run_at + self.run_every - now
        return remaining


app = Celery("controlplane")
app.conf.update(
    broker_url=broker_url(os.environ.get("REDIS_URL", "")),
    broker_connection_retry_on_startup=True,
    # A broker that is down must fail a send in the web at once (kombu's default is to try forever); the worker's
    # own connection has retries of its own.
    broker_transport_options={"max_retries": 0, "socket_connect_timeout": 2},
    task_default_queue="control",
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_schedule={
        "tick": {"task": "runs.tick", "schedule": Every(settings.TICK_S), "options": {"expires": settings.TICK_S}},
        "datasets": {"task": "datasets.sweep", "schedule": Every(30.0), "options": {"expires": 30}},
        "alerts": {
            "task": "alerting.deliver",
            "schedule": Every(settings.TICK_S),
            "options": {"expires": settings.TICK_S},
        },
    },
)
app.autodiscover_tasks(["runs", "controlplane.datasets", "runs.alerts"])


@beat_embedded_init.connect  # type: ignore[untyped-decorator]
def _end_with_the_worker(**kwargs: object) -> None:
    """A worker that ends tells its beat so once, by a SIGTERM, which one that has just been forked takes by the
    worker's own handler and forgets: it would beat on for ever, without a worker."""
    end_with(_WORKER, signal.SIGKILL)
