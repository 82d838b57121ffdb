"""A record of when each phase of a step began and ended, in any thread: one line per step.

A step's window reaches from its start to the start of the next step, so it includes its checkpoint and evaluation.
Phases that cross the end of a window, such as the generation of the next batch, are in both windows. Standard library
only.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from workers.contract.reports.waterfall import (
    EXTRA,
    MAX_LANE_LENGTH,
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

MIN_INTERVAL_S = 2.0
"""Minimum number of seconds between two steps that are written."""
MAX_SPANS = 20_000
"""Maximum number of spans kept per step; more are dropped."""
Write = Callable[[int, Mapping[str, Any]], None]
"""Function that writes a line, called with (step, the line's data)."""


class Waterfall:
    """Collector of spans of phases, by lane. It is thread-safe and takes a few microseconds per span."""

    def __init__(
        self, write: Write, *, clock: Callable[[], float] = time.perf_counter, wall: Callable[[], float] = time.time
    ) -> None:
        """Create a collector outside any step. `clock`: the clock of the times passed to `add`. `wall`: returns seconds
        since the epoch."""
        self._write = write
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._finished: list[tuple[str, str, float, float]] = []
        self._open: dict[int, tuple[str, str, float]] = {}
        self._numbers = 0
        self._step: int | None = None
        self._began = self._began_at = 0.0
        self._written_at = float("-inf")

    def add(self, lane: str, phase: str, start: float, end: float) -> None:
        with self._lock:
            if len(self._finished) < MAX_SPANS:
                self._finished.append((lane[:MAX_LANE_LENGTH], phase[:MAX_LANE_LENGTH], start, end))

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
        """End the window of the previous step, and begin the window of `step`, counted from 1."""
        self._end()
        self._step = step

    def training_ends(self, step: int) -> None:
        """End the last window. `step`: the last finished step; a step that began after it is dropped."""
        if self._step == step:
            self._end(is_last=True)
        self._step = None

    def _end(self, *, is_last: bool = False) -> None:
        now = self._clock()
        with self._lock:
            spans = [*self._finished, *((lane, phase, start, now) for lane, phase, start in self._open.values())]
            self._finished.clear()
        began, began_at, step = self._began, self._began_at, self._step
        self._began, self._began_at = now, self._wall()
        if step is None or not (is_last or now - self._written_at >= MIN_INTERVAL_S):
            return
        self._written_at = now
        window = now - began
        window_spans = [
            Span(lane, phase, max(0.0, start - began), min(end, now) - max(start, began))
            for lane, phase, start, end in spans
            if end > began
        ]
        data = {"began": round(began_at, 3), "seconds": round(window, 4), "spans": packed(window_spans, window)}
        self._write(step, data)


class Lanes:
    """Map of a step's parts to lanes, which depends on where the run generates."""

    def __init__(self, waterfall: Waterfall, spec: AttemptSpec) -> None:
        self.waterfall = waterfall
        served = spec.run.hardware.rollout is Rollout.SERVER
        self._servers = SERVER_ROLES[: len(servers_of(spec))] if served else ()
        has_gateway = spec.run.episodes is not None and spec.run.episodes.gateway is not None
        own_lanes = (TRAINER,)
        self._lanes_of: dict[str, tuple[str, ...]] = {
            StepPart.UPDATE: own_lanes,
            StepPart.LOGPS: own_lanes,
            OPTIMIZER: own_lanes,
            StepPart.WEIGHT_SYNC: (*own_lanes, *self._servers),
            StepPart.REWARDS: (REWARDS,),
            # Requests show when a server generates, except for requests of programs that drive episodes.
            StepPart.GENERATION: (self._servers if has_gateway else ()) if served else own_lanes,
        }

    def record(self, part: str, start: float, end: float) -> None:
        for lane in self._lanes_of.get(part, ()):
            self.waterfall.add(lane, part, start, end)

    def within(self, phase: StepPart) -> AbstractContextManager[None]:
        """Record the trainer's own work."""
        return self.waterfall.within(TRAINER, phase)

    def reward(self, name: str) -> AbstractContextManager[None]:
        return self.waterfall.within(REWARD + name, StepPart.REWARDS)

    def extra_round(self) -> AbstractContextManager[None]:
        return self.waterfall.within(EXTRA, EXTRA)

    def server(self, number: int) -> AbstractContextManager[None]:
        """Record a request for completions."""
        return self.waterfall.within(SERVER_ROLES[number], StepPart.GENERATION)

    def watch(self, generation: Any) -> None:
        """Record the requests of TRL's generation backend or its substitute from now on."""
        client = getattr(generation, "vllm_client", None)  # only the main process has one
        if not self._servers or client is None:
            return
        if hasattr(client, "clients"):  # a LoRA run
            client.around_request = self.server
            return
        generate = client.generate

        @functools.wraps(generate)
        def generate_recorded(*arguments: Any, **settings: Any) -> Any:
            with self.server(0):
                return generate(*arguments, **settings)

        client.generate = generate_recorded
