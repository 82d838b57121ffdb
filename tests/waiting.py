"""Waiting for a condition of a process or of another thread. The limit ends a hang and nothing else: on a machine that
is ten times slower than a quiet one every wait still ends well before it."""

from __future__ import annotations

import time
from collections.abc import Callable

LIMIT_S = 300.0
LIMIT_MS = 1000 * LIMIT_S


def wait_until(
    condition: Callable[[], object], why: Callable[[], str] = str, seconds: float = LIMIT_S, *, pause_s: float = 0.02
) -> None:
    """Raises:
    AssertionError: The condition did not hold within so many seconds; with what `why` answers then.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not true within {seconds:g} s\n{why()}")
        time.sleep(pause_s)
