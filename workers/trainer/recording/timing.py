"""The time of a step by parts, in seconds on this rank. A nested part's time is not included in that of the outer part.

Standard library only.
"""

import functools
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from workers.contract.reports.waterfall import OPTIMIZER
from workers.contract.wire.names import UNHURRIED_PARTS, StepPart

TIMED_PARTS = frozenset(StepPart) - UNHURRIED_PARTS - {StepPart.PREPARING}


class StepTimes:
    """A clock of the parts of steps. What happens outside `step`, such as an evaluation, is excluded."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.perf_counter,
        finish: Callable[[], None] = lambda: None,
        doing: Callable[[str], AbstractContextManager[None]] = lambda part: nullcontext(),
        record: Callable[[str, float, float], None] = lambda part, start, end: None,
    ) -> None:
        """Set the hooks. `finish` waits for pending device work, which would otherwise be attributed to the next part.
        `doing(part)` is entered for each part, in evaluations too. `record(part, start, end)` is called for each
        interval of a part and of the OPTIMIZER."""
        self._record = record
        self._doing = doing
        self._clock = clock
        self._finish = finish
        self._open: list[StepPart] = []
        self._since = 0.0
        self._seconds: dict[StepPart, float] = {}
        self._is_between = False

    @property
    def part(self) -> StepPart | None:
        """The innermost part that is open, or None."""
        return self._open[-1] if self._open else None

    @contextmanager
    def step(self) -> Iterator[None]:
        """Measure the work on one micro-batch; a step has as many as gradient accumulation steps."""
        if self._is_between:
            self._count(StepPart.UPDATE)  # the last batch's update, which a GPU may still be executing
        else:
            self._since = self._clock()
        with self._doing(StepPart.UPDATE), self._measure(StepPart.UPDATE):
            yield
        self._is_between = True

    @contextmanager
    def within(self, part: StepPart) -> Iterator[None]:
        with self._doing(part), self._measure(part) if self._open else nullcontext():
            yield

    def timed(self, part: StepPart, act: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(act)
        def run(*arguments: Any, **kwargs: Any) -> Any:
            with self.within(part):
                return act(*arguments, **kwargs)

        return run

    def step_done(self) -> None:
        """Attribute the time since the last micro-batch to the optimizer, which has just stepped."""
        if self._is_between:
            self._finish()
            self._count(StepPart.UPDATE, OPTIMIZER)
        self._is_between = False

    def pop(self) -> dict[str, float]:
        """Return `time/<part>_s` of the finished step, and reset the counters."""
        seconds_by_part, self._seconds = self._seconds, {}
        return {f"time/{part}_s": seconds for part, seconds in seconds_by_part.items() if part in TIMED_PARTS}

    @contextmanager
    def _measure(self, part: StepPart) -> Iterator[None]:
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
        self._record(name or part, self._since, now)
        self._since = now
