"""Rate limits of /api/v1/ and of shared runs: 429 with Retry-After before a request uses a thread or the database.

Each web process keeps a bucket per token, and one per address for requests without a known token. The module is async
because it is ASGI middleware; it does no other work.
"""

import hashlib
import json
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from django.conf import settings

from controlplane.platform.http.body_limit import App, Message, Receive, Send

PATH = "/api/v1/"
SHARED = "/shared/"
"""Path prefix of the pages of shared runs, which need no account."""
BURST_S = 5
"""Capacity of a bucket, as seconds of requests at the rate limit."""
MAX_BUCKETS = 10_000
"""Maximum number of buckets; beyond it the least recently used one is dropped."""


class Buckets:
    """Token buckets by key, refilled at `per_s` tokens a second."""

    def __init__(self, per_s: float, *, limit: int = MAX_BUCKETS, now: Callable[[], float] = time.monotonic) -> None:
        self.per_s, self.full, self.limit, self.now = per_s, per_s * BURST_S, limit, now
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Take a token and return 0. If there is none, return the seconds until there is one."""
        with self._lock:
            level = self._level(key)
            wait = max(0.0, (1 - level) / self.per_s)
            self._put(key, level if wait else level - 1)
            return wait

    def wait(self, key: str) -> float:
        """Return the seconds until there is a token, 0 if there is one, without taking it."""
        with self._lock:
            return max(0.0, (1 - self._level(key)) / self.per_s)

    def _level(self, key: str) -> float:
        level, updated_at = self._levels.get(key, (self.full, self.now()))
        return min(self.full, level + (self.now() - updated_at) * self.per_s)

    def _put(self, key: str, level: float) -> None:
        self._levels[key] = level, self.now()
        self._levels.move_to_end(key)
        while len(self._levels) > self.limit:
            self._levels.popitem(last=False)


_buckets = Buckets(settings.API_PER_SECOND)


def count_refusal(address: str) -> None:
    """Count a request without a valid token against its address."""
    _buckets.take(f"from {address}")


class ApiThrottle:
    def __init__(self, app: App, buckets: Buckets = _buckets) -> None:
        self.app, self.buckets = app, buckets

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith((PATH, SHARED)) and (wait := self._wait(scope)):
            await _refuse(send, wait, to_people=scope["path"].startswith(SHARED))
            return
        await self.app(scope, receive, send)

    def _wait(self, scope: Message) -> float:
        authorization = next((value for name, value in scope.get("headers", ()) if name == b"authorization"), b"")
        address = f"from {(scope.get('client') or ('',))[0]}"
        if not authorization or scope["path"].startswith(SHARED):  # where tokens don't matter
            return self.buckets.take(address)
        return self.buckets.wait(address) or self.buckets.take(hashlib.sha256(authorization).hexdigest())


async def _refuse(send: Send, wait: float, *, to_people: bool) -> None:
    seconds = str(math.ceil(wait))
    error = {
        "what": "Too many requests.",
        "where": "rate",
        "fix": f"Wait {seconds} s and send fewer requests at a time.",
    }
    kind, body = "application/json", json.dumps({"error": error})
    if to_people:
        kind, body = "text/plain", f"{error['what']} {error['fix']}"
    headers = [(b"content-type", kind.encode()), (b"retry-after", seconds.encode())]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
