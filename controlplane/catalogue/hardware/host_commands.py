"""Commands to hosts over Celery: the one place that sends them, and that tests patch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from kombu.exceptions import KombuError

from controlplane.celery import app
from workers.contract.wire.joining import queue_of
from workers.contract.wire.names import Task


class BrokerDown(Exception):
    """The message broker is unavailable; the tick sends again."""


def send(host_name: str, task: Task, args: Sequence[Any]) -> None:
    """Put a command into a host's queue.

    It doesn't expire: Celery would compare our clock with the host's, and a host whose clock is ahead would drop every
    command. So all commands are harmless when late: a launch is decided by its claim, a reap by the lock, a stop is
    never taken back. Lost commands are sent again by our own timing.
    """
    if not settings.REDIS_URL:
        raise BrokerDown("REDIS_URL is not set.")
    try:
        app.send_task(task.value, args=list(args), queue=queue_of(host_name), retry=False)
    except (KombuError, OSError) as error:
        raise BrokerDown(str(error) or "The message broker can't be reached.") from error
