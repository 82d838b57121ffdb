"""Commands to hosts over Celery: the one place that sends, and the one seam that tests patch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from kombu.exceptions import KombuError

from controlplane.celery import app
from workers.contract import Task


class BrokerDown(Exception):
    """The message broker can't be reached; the tick sends again."""


def send(host_name: str, task: Task, args: Sequence[Any]) -> None:
    """Put a command into a host's queue.

    It doesn't expire: Celery would compare our clock's time with the host's, and a host whose clock is ahead would drop
    every command unseen. So every command does no harm when it comes late: a launch is decided by its claim, a reap by
    the lock, a stop's intent is never taken back. What got lost is sent again after times that are all ours.
    """
    if not settings.REDIS_URL:
        raise BrokerDown("REDIS_URL is not set.")
    try:
        app.send_task(task.value, args=list(args), queue=f"host.{host_name}", retry=False)
    except (KombuError, OSError) as error:
        raise BrokerDown(str(error) or "The message broker can't be reached.") from error
