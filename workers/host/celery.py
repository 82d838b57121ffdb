"""The host's Celery app, which receives short commands from the control plane and runs the announcements.

    celery -A workers.host.celery worker -Q host.<name> -n host@<name>

It uses the prefork pool, because the launcher must spawn processes from a main thread, in which a pool child runs
tasks."""

import os
import socket

from celery import Celery
from celery.signals import worker_process_init, worker_ready, worker_shutdown

from workers.contract.wire.joining import unacknowledged_keys
from workers.contract.wire.names import broker_url
from workers.host import announce
from workers.settings import HostSettings

# No fix-ups: a DJANGO_SETTINGS_MODULE in the environment must not pull Django into this program.
app = Celery("workers", fixups=[], include=["workers.host.tasks"])
app.conf.update(
    broker_url=broker_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379/0")),
    broker_connection_retry_on_startup=True,
    # A blocking read must not time out while the queue is silent. The host's user in Redis may use these keys only.
    broker_transport_options={
        "socket_timeout": None,
        "socket_keepalive": True,
        **unacknowledged_keys(os.environ.get("GRPO_HOST_NAME") or socket.gethostname()),
    },
    task_serializer="json",
    accept_content=["json"],
    task_ignore_result=True,
    # Tasks are short and idempotent, and the control plane resends lost ones. The broker would redeliver an hour late.
    task_acks_late=False,
    task_time_limit=300,
    worker_prefetch_multiplier=1,
    worker_concurrency=2,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    worker_hijack_root_logger=True,
    enable_utc=True,
)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _begin_announcing(**kwargs: object) -> None:
    # In the worker's own process, which lives as long as the worker receives messages.
    announce.start(HostSettings.from_env())


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _stop_announcing(**kwargs: object) -> None:
    announce.stop()


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _quiet_http(**kwargs: object) -> None:
    announce.quiet_http_log()
