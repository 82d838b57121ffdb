"""Records when each phase of a step began and ended, in whatever thread, and writes a line for each step.

A step's window reaches from its begin to the next one's, so that its checkpoint and evaluation are in it. What goes on
across a window's end, such as the generation of the next batch, is in both. Standard library only.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from workers.contract.reports.waterfall import (
    EXTRA,
    LONGEST_LANE,
    OPTIMIZER,
    REWARD,
    REWARDS,
    TRAINER,
    Span,
    packed,
)
from workers.contract.run.hardware import Rollout
from workers.contract.run.spec import AttemptSpec, servers_of
from workers.contract.wire.names import SERVER_ROLES, StepPart

PAUSE_S = 2.0
"""Shorter steps are not all written: one in this time."""
MOST_HELD = 20_000
"""Spans of a step that are held; of a step with more, later ones are left out."""
Write = Callable[[int, Mapping[str, Any]], None]
"""(step, the line's data)"""


class Waterfall:
    """Thread-safe. Costs some microseconds a span."""

    def __init__(
        self, write: Write, *, clock: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        """`clock`: of the times that `add` is given."""
        self._write = write
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._done: list[tuple[str, str, float, float]] = []
        self._open: dict[int, tuple[str, str, float]] = {}
        self._numbers = 0
        self._step: int | None = None
        self._began = self._began_at = 0.0
        self._written = float("-inf")

    def add(self, lane: str, phase: str, start: float, end: float) -> None:
        with self._lock:
            if len(self._done) < MOST_HELD:
                self._done.append((lane[:LONGEST_LANE], phase[:LONGEST_LANE], start, end))

    @contextmanager
    def within(self, lane: str, phase: str) -> Iterator[None]:
        with self._lock:
            self._numbers += 1
            number = self._numbers
            self._open[number] = (lane, phase, self._clock())
        try:
            yield
        finally:
            with self._lock:
                _, _, start = self._open.pop(number)
            self.add(lane, phase, start, self._clock())

    def step_begins(self, step: int) -> None:
        """The step before it is over. `step`: counted from 1."""
        self._end()
        self._step = step

    def training_ends(self, step: int) -> None:
        """`step`: the last that was trained. One that has begun and isn't finished is not told."""
        if self._step == step:
            self._end(last=True)
        self._step = None

    def _end(self, *, last: bool = False) -> None:
        now = self._clock()
        with self._lock:
            spans = [*self._done, *((lane, phase, start, now) for lane, phase, start in self._open.values())]
            self._done.clear()
        began, began_at, step = self._began, self._began_at, self._step
        self._began, self._began_at = now, self._wall()
        if step is None or not (last or now - self._written >= PAUSE_S):
            return
        self._written = now
        window = now - began
        inside = [
            Span(lane, phase, max(0.0, start - began), min(end, now) - max(start, began))
            for lane, phase, start, end in spans
            if end > began
        ]
        data = {"began": round(began_at, 3), "seconds": round(window, 4), "spans": packed(inside, window)}
        self._write(step, data)


class Lanes:
    """Which lane a part of the step belongs to, by where the run generates."""

    def __init__(self, waterfall: Waterfall, spec: AttemptSpec) -> None:
        self.waterfall = waterfall
        served = spec.run.hardware.rollout is Rollout.SERVER
        self._servers = SERVER_ROLES[: len(servers_of(spec))] if served else ()
        played = spec.run.episodes is not None and spec.run.episodes.gateway is not None
        own = (TRAINER,)
        self._of: dict[str, tuple[str, ...]] = {
            StepPart.UPDATE: own,
            StepPart.LOGPS: own,
            OPTIMIZER: own,
            StepPart.WEIGHT_SYNC: (*own, *self._servers),
            StepPart.REWARDS: (REWARDS,),
            # A server's requests tell when it generates; those of programs that drive episodes don't come from here.
            StepPart.GENERATION: (self._servers if played else ()) if served else own,
        }

    def told(self, part: str, start: float, end: float) -> None:
        for lane in self._of.get(part, ()):
            self.waterfall.add(lane, part, start, end)

    def within(self, phase: StepPart) -> AbstractContextManager[None]:
        """Of the trainer's own work."""
        return self.waterfall.within(TRAINER, phase)

    def reward(self, name: str) -> AbstractContextManager[None]:
        return self.waterfall.within(REWARD + name, StepPart.REWARDS)

    def extra_round(self) -> AbstractContextManager[None]:
        return self.waterfall.within(EXTRA, EXTRA)

    def server(self, number: int) -> AbstractContextManager[None]:
        """Around a request for completions."""
        return self.waterfall.within(SERVER_ROLES[number], StepPart.GENERATION)

    def watch(self, generation: Any) -> None:
        """TRL's generation backend, or the one in its place."""
        client = getattr(generation, "vllm_client", None)  # of the main process alone
        if not self._servers or client is None:
            return
        if hasattr(client, "clients"):  # of a LoRA run
            client.asking = self.server
            return
        generate = client.generate

        @functools.wraps(generate)
        def generated(*arguments: Any, **settings: Any) -> Any:
            with self.server(0):
                return generate(*arguments, **settings)

        client.generate = generated
