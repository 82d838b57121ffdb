"""Delivery of commands to hosts over Celery, in this module only, so that tests can patch it."""

from collections.abc import Sequence
from typing import Any

from django.conf import settings
from kombu.exceptions import KombuError

from controlplane.celery import app
from workers.contract.wire.joining import queue_of
from workers.contract.wire.names import Task


class BrokerDown(Exception):
    """Failure to reach the message broker; the next tick sends the command again."""


def send(host_name: str, task: Task, args: Sequence[Any]) -> None:
    """Put a command into a host's queue.

    Commands don't expire: Celery would compare our clock with the host's, and a host whose clock is ahead would drop
    them all. So late commands must be harmless: a launch is decided by its claim, a reap by the lock, and a stop is
    never revoked. Lost commands are sent again by the tick.
    """
    if not settings.REDIS_URL:
        raise BrokerDown("REDIS_URL is not set.")
    try:
        app.send_task(task.value, args=list(args), queue=queue_of(host_name), retry=False)
    except (KombuError, OSError) as error:
        raise BrokerDown(str(error) or "The message broker can't be reached.") from error
