"""Hints that something new is stored: one PUBLISH of a number, only for runs that somebody watches.

A hint may be lost, doubled or late; readers go by their cursor. So nothing here may slow or break a writer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

CHANNEL = "live"
"""Messages are `<run id> <seq>`; seq 0 stands for a change of the run itself."""
PERSON = "person"
"""`person <user id>`: their sign-in may have ended, so each open socket of theirs asks again."""
LIST = "*"
"""The name under which the list of runs is watched."""
WATCH_EXPIRES_S = 15
WATCHED_CACHE_S = 1.0
BROKEN_PAUSE_S = 5.0
"""After a failure Redis is left alone for so long: a time-out per batch would slow every writer."""


class _Redis:
    """One long-lived client a process; connections are made on first use and re-made after a fork."""

    def __init__(self) -> None:
        self._client: redis.Redis | None = None
        self._url = ""
        self._broken_until = 0.0
        self._watched: dict[str, tuple[bool, float]] = {}
        self._lock = threading.Lock()

    def publish(self, message: str) -> None:
        self._try(lambda client: client.publish(CHANNEL, message))

    def watched(self, run_id: str) -> bool:
        """Cached for a second: asked for every batch of every run."""
        now = time.monotonic()
        known = self._watched.get(run_id)
        if known is not None and known[1] > now:
            return known[0]
        found = self._try(lambda client: client.exists(watch_key(run_id)))
        if len(self._watched) > 10_000:
            self._watched.clear()
        self._watched[run_id] = (bool(found), now + WATCHED_CACHE_S)
        return bool(found)

    def forget(self) -> None:
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


def announce(run_id: str, seq: int) -> None:
    """New rows up to `seq` are stored. Call it after the commit."""
    if watched(run_id) or watched(LIST):
        _redis.publish(f"{run_id} {seq}")


def changed(run_id: str) -> None:
    """The run itself changed (a status, an intent): rare, so it is said to everybody."""
    _redis.publish(f"{run_id} 0")


def person_changed(user_id: int) -> None:
    """A password, a sign-out, an account disabled: rare, and said to everybody. Call it after the commit."""
    _redis.publish(f"{PERSON} {user_id}")


def watched(run_id: str) -> bool:
    """Somebody has the run's page open (as far as this process knew a second ago)."""
    return _redis.watched(run_id)


def watch_key(run_id: str) -> str:
    """Set by web processes while they have a viewer, with WATCH_EXPIRES_S to live."""
    return f"watched:{run_id}"


def forget() -> None:
    """Drop what is cached (tests, a changed address)."""
    _redis.forget()
