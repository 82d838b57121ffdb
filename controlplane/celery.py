"""The control plane's own Celery app: dataset validation and the tick. Runs are never inside a task."""

from __future__ import annotations

import os

from celery import Celery
from django.conf import settings

from workers.contract import broker_url

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

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
        "tick": {"task": "runs.tick", "schedule": settings.TICK_S, "options": {"expires": settings.TICK_S}},
        "datasets": {"task": "datasets.sweep", "schedule": 30.0, "options": {"expires": 30}},
    },
)
app.autodiscover_tasks(["runs", "controlplane.datasets"])
