"""Slows a client of /api/v1/ or of shared runs down: 429 with Retry-After, before the request takes a thread or touches
the database.

Each token has a bucket that fills steadily; so has each address, for requests without a known token. Counted per web
process. Async because it is ASGI; it does no other work.
"""

from __future__ import annotations

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
"""Of runs that somebody shares by a link: open to everybody."""
BURST_S = 5
"""A full bucket holds what a client may send in this many seconds."""
MOST = 10_000
"""Buckets; the one that was used longest ago is dropped."""


class Buckets:
    """Token buckets by key."""

    def __init__(self, per_s: float, *, most: int = MOST, now: Callable[[], float] = time.monotonic) -> None:
        self.per_s, self.full, self.most, self.now = per_s, per_s * BURST_S, most, now
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: str) -> float:
        """Take one; 0 if there was one, otherwise the seconds until there is."""
        with self._lock:
            level = self._level(key)
            wait = max(0.0, (1 - level) / self.per_s)
            self._put(key, level if wait else level - 1)
            return wait

    def wait(self, key: str) -> float:
        """The seconds until there is one to take."""
        with self._lock:
            return max(0.0, (1 - self._level(key)) / self.per_s)

    def _level(self, key: str) -> float:
        level, at = self._levels.get(key, (self.full, self.now()))
        return min(self.full, level + (self.now() - at) * self.per_s)

    def _put(self, key: str, level: float) -> None:
        self._levels[key] = level, self.now()
        self._levels.move_to_end(key)
        while len(self._levels) > self.most:
            self._levels.popitem(last=False)


_buckets = Buckets(settings.API_PER_SECOND)


def refused(address: str) -> None:
    """A request had no valid token: it counts against its address."""
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
        sent = next((value for name, value in scope.get("headers", ()) if name == b"authorization"), b"")
        address = f"from {(scope.get('client') or ('',))[0]}"
        if not sent or scope["path"].startswith(SHARED):  # there a token counts nothing
            return self.buckets.take(address)
        return self.buckets.wait(address) or self.buckets.take(hashlib.sha256(sent).hexdigest())


async def _refuse(send: Send, wait: float, *, to_people: bool) -> None:
    seconds = str(math.ceil(wait))
    told = {"what": "Too many requests.", "where": "rate", "fix": f"Wait {seconds} s, and send fewer at a time."}
    kind, body = "application/json", json.dumps({"error": told})
    if to_people:
        kind, body = "text/plain", f"{told['what']} {told['fix']}"
    headers = [(b"content-type", kind.encode()), (b"retry-after", seconds.encode())]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
