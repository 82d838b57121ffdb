"""Hints in Redis of new rows in watched runs, and of changes to runs and sign-ins. Hints may be lost, duplicated or
late, because readers rely on their cursors. So nothing here may slow down or break a writer."""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis
from django.conf import settings
from django.dispatch import receiver
from redis.backoff import NoBackoff
from redis.retry import Retry

from controlplane.platform.accounts.models import sign_in_changed

log = logging.getLogger(__name__)

CHANNEL = "live"
"""Redis channel. Its messages are `<run id> <seq>`; seq 0 means that the run itself has changed."""
PERSON = "person"
"""First word of the message `person <user id>`: the user's sign-in may have ended, so their sockets check it."""
LIST = "*"
"""Name under which the list of runs is watched, in place of a run id."""
WATCH_EXPIRES_S = 15
WATCHED_CACHE_S, UNWATCHED_CACHE_S = 1.0, 0.1
"""Seconds for which it is cached whether a run is watched. They are fewer for unwatched runs, so that even the first
lines after a page was opened are announced."""
BROKEN_PAUSE_S = 5.0
"""Seconds for which Redis isn't tried again after a failure, since a time-out per batch would slow every writer."""


class _Redis:
    """The process's long-lived Redis client, which connects on first use and again after a fork."""

    def __init__(self) -> None:
        self._client: redis.Redis | None = None
        self._url = ""
        self._broken_until = 0.0
        self._watched: dict[str, tuple[bool, float]] = {}
        self._lock = threading.Lock()

    def publish(self, messages: Sequence[str]) -> None:
        def send(client: redis.Redis) -> None:
            with client.pipeline(transaction=False) as pipe:
                for message in messages:
                    pipe.publish(CHANNEL, message)
                pipe.execute()

        self._try(send)

    def watched(self, run_ids: Iterable[str]) -> set[str]:
        """Return the ids of the runs that somebody is watching, cached for up to a second, as every batch asks."""
        now = time.monotonic()
        distinct_ids = dict.fromkeys(run_ids)
        uncached_ids = [run_id for run_id in distinct_ids if self._watched.get(run_id, (False, 0.0))[1] <= now]
        if uncached_ids:
            marks: Any = self._try(lambda client: client.mget([watch_key(run_id) for run_id in uncached_ids]))
            if len(self._watched) > 10_000:
                self._watched.clear()
            for run_id, mark in zip(uncached_ids, marks or [None] * len(uncached_ids), strict=True):
                cached_s = UNWATCHED_CACHE_S if mark is None else WATCHED_CACHE_S
                self._watched[run_id] = (mark is not None, now + cached_s)
        return {run_id for run_id in distinct_ids if self._watched.get(run_id, (False, 0.0))[0]}

    def forget(self) -> None:
        """Clear the cache and the pause after a failure, for tests."""
        self._watched.clear()
        self._broken_until = 0.0

    def _try(self, act: Callable[[redis.Redis], object]) -> object:
        if not settings.REDIS_URL or time.monotonic() < self._broken_until:
            return None
        try:
            return act(self._get())
        except (redis.RedisError, OSError) as error:
            self._broken_until = time.monotonic() + BROKEN_PAUSE_S
            log.warning("no live hints for %g s: %s", BROKEN_PAUSE_S, error)
            return None

    def _get(self) -> redis.Redis:
        with self._lock:
            if self._client is None or self._url != settings.REDIS_URL:
                self._url = settings.REDIS_URL
                self._client = redis.Redis.from_url(
                    self._url, socket_timeout=0.5, socket_connect_timeout=0.5, retry=Retry(NoBackoff(), 1)
                )
            return self._client


_redis = _Redis()
watched, forget = _redis.watched, _redis.forget


def announce(*news: tuple[str, int]) -> None:
    """Announce new rows of watched runs, given as (run id, newest seq). Call it after the commit."""
    watched_names = watched([LIST, *(run_id for run_id, _ in news)])
    if messages := [f"{run_id} {seq}" for run_id, seq in news if run_id in watched_names or LIST in watched_names]:
        _redis.publish(messages)


def changed(run_id: str) -> None:
    """Announce a change of the run itself (its status or a stop request), whether or not it is watched."""
    _redis.publish([f"{run_id} 0"])


@receiver(sign_in_changed)
def person_changed(user_id: int, **signal: Any) -> None:
    """Announce that a user's sign-in may have ended (a changed password, a sign-out, a disabled account), so that open
    sockets check it. Call it after the commit."""
    _redis.publish([f"{PERSON} {user_id}"])


def watch_key(run_id: str) -> str:
    """Return the Redis key that web processes set while a viewer is connected; it expires after WATCH_EXPIRES_S."""
    return f"watched:{run_id}"
