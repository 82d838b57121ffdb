"""Where a step's time goes: seconds of each part on this rank. A part inside another one counts as its own alone.

Standard library only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Any


class StepPart(StrEnum):
    PREPARING = ""  # between the others, of no name
    GENERATION = "generation"
    WEIGHT_SYNC = "weight_sync"
    REWARDS = "rewards"
    LOGPS = "logps"
    UPDATE = "update"


class StepTimes:
    """Counts only within `step`: what an evaluation between two steps takes is none of theirs."""

    def __init__(
        self, *, clock: Callable[[], float] = time.perf_counter, finish: Callable[[], None] = lambda: None
    ) -> None:
        """`finish` waits for what a device still works on after a call: else the next part would be charged for it."""
        self._clock = clock
        self._finish = finish
        self._open: list[StepPart] = []
        self._since = 0.0
        self._seconds: dict[StepPart, float] = {}
        self._left = False

    @property
    def part(self) -> StepPart | None:
        """The innermost one that is open."""
        return self._open[-1] if self._open else None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Round the work on one batch: a step has as many as it accumulates gradients of."""
        if self._left:
            self._count(StepPart.UPDATE)  # the last batch's, which a GPU had not ended yet
        else:
            self._since = self._clock()
        with self._in(StepPart.UPDATE):
            yield
        self._left = True

    @contextmanager
    def within(self, part: StepPart) -> Iterator[None]:
        if not self._open:
            yield
            return
        with self._in(part):
            yield

    def timed(self, part: StepPart, act: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(act)
        def run(*arguments: Any, **named: Any) -> Any:
            with self.within(part):
                return act(*arguments, **named)

        return run

    def step_done(self) -> None:
        """The optimizer has stepped: what came after the last batch was its work."""
        if self._left:
            self._finish()
            self._count(StepPart.UPDATE)
        self._left = False

    def taken(self) -> dict[str, float]:
        """`time/<part>_s` of the step that is done; counting begins anew."""
        taken, self._seconds = self._seconds, {}
        return {f"time/{part}_s": seconds for part, seconds in taken.items() if part}

    @contextmanager
    def _in(self, part: StepPart) -> Iterator[None]:
        if self._open:
            self._count(self._open[-1])
        self._open.append(part)
        try:
            yield
        finally:
            if part is StepPart.LOGPS:
                self._finish()
            self._count(self._open.pop())

    def _count(self, part: StepPart) -> None:
        now = self._clock()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._since
        self._since = now
