"""Threads that call tick() repeatedly, and single background calls: both keep slow work off the main thread."""

import logging
import os
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from workers.contract.wire.processes import niceness

log = logging.getLogger(__name__)
T = TypeVar("T")
ERROR_WAIT_S = 5.0


class Loop(threading.Thread):
    """A thread that calls `tick(now)` until it is stopped; each call returns the seconds until the next. It is a
    daemon, so that a hanging call (NVML with a broken driver) can't keep the supervisor alive, and has a lower priority
    than the trainer and its servers. The main thread keeps its priority, because its children would inherit its
    niceness."""

    def __init__(self, name: str, tick: Callable[[float], float]) -> None:
        super().__init__(name=name, daemon=True)
        self._tick = tick
        self._wake = threading.Event()
        self._stopped = False

    def run(self) -> None:
        lower_priority()
        while not self._stopped:
            try:
                wait = self._tick(time.monotonic())
            except Exception:
                log.exception("%s: a tick failed", self.name)
                wait = ERROR_WAIT_S
            self._wake.wait(wait)
            self._wake.clear()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()


def lower_priority() -> None:
    """Lower the calling thread's priority; on Linux each thread has its own."""
    thread = threading.get_native_id()
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, max(niceness(), os.getpriority(os.PRIO_PROCESS, thread)))


class BackgroundCall(Generic[T]):
    """One call in its own thread; the main thread polls `done`."""

    def __init__(self, name: str, call: Callable[[], T]) -> None:
        self.done = False
        self.error: Exception | None = None
        self._call = call
        self._value: T | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds`; return whether the call is done. The supervisor's main thread must not call this."""
        self._thread.join(seconds)
        return self.done

    def value(self) -> T:
        """Return the call's result, or raise the exception that the call raised."""
        if self.error is not None:
            raise self.error
        return self._value  # type: ignore[return-value]

    def _run(self) -> None:
        try:
            self._value = self._call()
        except Exception as error:
            log.debug("a background call failed", exc_info=True)
            self.error = error
        finally:
            self.done = True


class Backoff:
    """Delays that double from a quarter of a second up to a limit. They are randomised, so that a hundred supervisors
    don't all reconnect at once."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self.failures = 0

    def failed(self) -> float:
        """Record a failure and return the seconds until the next try."""
        self.failures += 1
        return float(min(self._limit_s, 0.25 * 2 ** min(self.failures - 1, 12)) * random.uniform(0.8, 1.2))  # noqa: S311

    def succeeded(self) -> None:
        self.failures = 0
