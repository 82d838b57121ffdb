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
    """Put a command into a host's queue. Raises BrokerDown if the message broker can't be reached. Commands don't
    expire, since Celery would compare the host's clock with ours: a host whose clock is ahead would drop them all. Late
    commands must therefore be harmless: a launch depends on its claim, a reap on the lock, and a stop is never revoked.
    The tick sends lost commands again."""
    if not settings.REDIS_URL:
        raise BrokerDown("REDIS_URL is not set.")
    try:
        app.send_task(task.value, args=list(args), queue=queue_of(host_name), retry=False)
    except (KombuError, OSError) as error:
        raise BrokerDown(str(error) or "The message broker can't be reached.") from error
