"""Celery's side of the hosts' users in Redis: beat looks after them."""

from __future__ import annotations

import logging

import redis

from controlplane.catalogue.joining import host_redis
from controlplane.celery import app

log = logging.getLogger(__name__)


@app.task(name="joining.tend")  # type: ignore[untyped-decorator]  # celery has no types
def tend() -> None:
    try:
        host_redis.tend()
    except redis.RedisError as error:
        log.warning("the hosts' users in Redis could not be looked at: %s", error)
