"""The time of a step by parts: seconds on this rank. Nested parts count only as themselves.

Standard library only.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from workers.contract.reports.waterfall import OPTIMIZER
from workers.contract.wire.names import UNHURRIED, StepPart

TIMED = frozenset(StepPart) - UNHURRIED - {StepPart.PREPARING}


class StepTimes:
    """Counts only within `step`: an evaluation between two steps is excluded."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        finish: Callable[[], None] = lambda: None,
        doing: Callable[[str], AbstractContextManager[None]] = lambda part: nullcontext(),
        told: Callable[[str, float, float], None] = lambda part, start, end: None,
    ) -> None:
        """`finish` waits for pending device work after a call; otherwise the next part would be charged for it. `doing`
        is entered for each part, evaluations' too. `told` of each stretch of a part by the clock, and of the
        OPTIMIZER's."""
        self._told = told
        self._doing = doing
        self._clock = clock
        self._finish = finish
        self._open: list[StepPart] = []
        self._since = 0.0
        self._seconds: dict[StepPart, float] = {}
        self._left = False

    @property
    def part(self) -> StepPart | None:
        """The innermost open part."""
        return self._open[-1] if self._open else None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Wraps the work on one batch: a step has one per accumulated gradient."""
        if self._left:
            self._count(StepPart.UPDATE)  # the last batch's update, which a GPU may still be executing
        else:
            self._since = self._clock()
        with self._doing(StepPart.UPDATE), self._in(StepPart.UPDATE):
            yield
        self._left = True

    @contextmanager
    def within(self, part: StepPart) -> Iterator[None]:
        with self._doing(part), self._in(part) if self._open else nullcontext():
            yield

    def timed(self, part: StepPart, act: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(act)
        def run(*arguments: Any, **kwargs: Any) -> Any:
            with self.within(part):
                return act(*arguments, **kwargs)

        return run

    def step_done(self) -> None:
        """The optimizer has stepped: the time since the last batch was its work."""
        if self._left:
            self._finish()
            self._count(StepPart.UPDATE, OPTIMIZER)
        self._left = False

    def taken(self) -> dict[str, float]:
        """`time/<part>_s` of the finished step; resets the counters."""
        seconds_by_part, self._seconds = self._seconds, {}
        return {f"time/{part}_s": seconds for part, seconds in seconds_by_part.items() if part in TIMED}

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

    def _count(self, part: StepPart, name: str = "") -> None:
        now = self._clock()
        self._seconds[part] = self._seconds.get(part, 0.0) + now - self._since
        self._told(name or part, self._since, now)
        self._since = now
