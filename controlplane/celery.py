"""The control plane's own Celery app: dataset validation and the tick. Runs are never inside a task."""

from __future__ import annotations

import os

from celery import Celery

from workers.contract import broker_url

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")

app = Celery("controlplane")
app.conf.update(
    broker_url=broker_url(os.environ.get("REDIS_URL", "")),
    broker_connection_retry_on_startup=True,
    task_default_queue="control",
    task_ignore_result=True,
    task_serializer="json",
    accept_content=["json"],
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    beat_schedule={"tick": {"task": "runs.tick", "schedule": 5.0, "options": {"expires": 5}}},
)
app.autodiscover_tasks(["runs", "controlplane.datasets"])
