"""Durations measured by the control plane's processes, as histograms that are summed in Redis so that any web process
can serve the metrics of all. A killed process loses at most FLUSH_S seconds of its measurements."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

log = logging.getLogger(__name__)

KEY = "measured"
BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
FLUSH_S = 5.0
"""Seconds between two writes, which keeps measuring cheap, and between two tries while Redis is unreachable."""
_LAST_BUCKET, _SUM = "+Inf", "sum"


class MeasuredDuration(StrEnum):
    INGEST = "ingest"
    TICK = "tick"


class _DurationSums:
    def __init__(self) -> None:
        self._pending: Counter[str] = Counter()
        self._due = 0.0
        self._lock = threading.Lock()

    def add(self, name: MeasuredDuration, seconds: float) -> None:
        bucket = next((str(bound) for bound in BOUNDS if seconds <= bound), _LAST_BUCKET)
        with self._lock:
            self._pending[f"{name}:{bucket}"] += 1
            self._pending[f"{name}:{_SUM}"] += seconds  # type: ignore[assignment]  # a Counter adds floats as well
            is_due = time.monotonic() >= self._due
        if is_due:
            self.flush()

    def flush(self) -> None:
        """Add the pending measurements to the sums in Redis; keep them if Redis is unreachable."""
        with self._lock:
            self._due = time.monotonic() + FLUSH_S
            pending_sums, self._pending = self._pending, Counter()
        if not pending_sums or self._send(pending_sums):
            return
        with self._lock:
            self._pending.update(pending_sums)

    def _send(self, pending_sums: Counter[str]) -> bool:
        if not settings.REDIS_URL:
            return False
        try:
            with client() as connection, connection.pipeline(transaction=True) as pipe:
                for name, amount in pending_sums.items():
                    pipe.hincrbyfloat(KEY, name, amount)
                pipe.execute()
        except (redis.RedisError, OSError) as error:
            log.warning("measured durations wait for Redis: %s", error)
            return False
        return True

    def read(self) -> dict[str, float]:
        """Read the sums of all processes, or of this one without a Redis URL; return {} if Redis is unreachable."""
        self.flush()
        if not settings.REDIS_URL:
            with self._lock:
                return {name: float(amount) for name, amount in self._pending.items()}
        try:
            with client() as connection:
                stored_sums: Any = connection.hgetall(KEY)
        except (redis.RedisError, OSError):
            return {}
        return {name.decode(): float(amount) for name, amount in stored_sums.items()}


sums = _DurationSums()


@contextmanager
def measuring(name: MeasuredDuration) -> Iterator[None]:
    begin = time.monotonic()
    try:
        yield
    finally:
        sums.add(name, time.monotonic() - begin)


def histograms() -> dict[MeasuredDuration, tuple[list[tuple[str, float]], float]]:
    """Return Prometheus's cumulative buckets and the sum of each duration. Return {} while Redis is unreachable, since
    a counter that drops would look like a restart."""
    seconds = sums.read()
    result = {}
    for name in MeasuredDuration if seconds else ():
        total, buckets = 0.0, []
        for bound in (*map(str, BOUNDS), _LAST_BUCKET):
            total += seconds.get(f"{name}:{bound}", 0.0)
            buckets.append((bound, total))
        result[name] = (buckets, seconds.get(f"{name}:{_SUM}", 0.0))
    return result


def client() -> redis.Redis:
    """Create a Redis client with short time-outs, for a few commands."""
    return redis.Redis.from_url(
        settings.REDIS_URL, socket_timeout=1, socket_connect_timeout=1, retry=Retry(NoBackoff(), 0)
    )
