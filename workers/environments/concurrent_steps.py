"""Concurrent execution of functions that may block, each with a time-out. Results have the functions' order.

A blocked function is abandoned: its daemon thread stays, another thread replaces it, and `leave` is called, so that the
resource that the function is waiting for can be closed.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

GRACE_S = 0.5
"""Extra seconds after a step's time-out, for a function that ends in time but hasn't returned yet."""


class StepAbandoned(TimeoutError):
    """Result of a function that was abandoned or never started."""


@dataclass(frozen=True)
class TimedStep:
    function: Callable[[float], Any]
    """Function to call with the seconds that it may take."""
    seconds: float
    """Time-out; less if the sequence's deadline comes first."""


@dataclass
class StepResult:
    value: Any
    """Returned value, or the exception that was raised."""
    seconds: float


@dataclass
class StepSequence:
    """Steps that run one after another."""

    steps: Sequence[TimedStep]
    deadline: float = float("inf")
    """Deadline by time.monotonic()."""
    leave: Callable[[], None] = lambda: None
    """Function to call in a new thread when a step is abandoned; later steps of the sequence aren't started."""
    results: list[StepResult] = field(default_factory=list)
    """One result per step once `run` has ended."""
    _begun: float = 0.0
    _ends: float = float("inf")
    _is_left: bool = False


def run(sequences: Sequence[StepSequence], *, at_once: int) -> None:
    """Run all sequences, at most `at_once` concurrently, and store each step's value or exception in its sequence."""
    _Round(sequences, at_once).run()


class _Round:
    def __init__(self, sequences: Sequence[StepSequence], at_once: int) -> None:
        self._waiting = deque(sequences)
        self._running: list[StepSequence] = []
        self._open = len(sequences)
        self._at_once = at_once
        self._changed = threading.Condition()

    def run(self) -> None:
        with self._changed:
            for _ in range(min(self._at_once, len(self._waiting))):
                self._start()
            while self._open:
                now = time.monotonic()
                for sequence in [running for running in self._running if running._ends <= now]:
                    self._leave(sequence, now)
                if self._open:
                    next_deadline = min((running._ends for running in self._running), default=now + 1)
                    self._changed.wait(min(max(next_deadline - now, 0.0), 1.0))

    def _start(self) -> None:
        threading.Thread(target=self._work, daemon=True, name="episode-call").start()

    def _leave(self, sequence: StepSequence, now: float) -> None:
        sequence._is_left = True
        sequence.results.append(StepResult(StepAbandoned("It took too long."), now - sequence._begun))
        self._end(sequence)
        threading.Thread(target=sequence.leave, daemon=True, name="episode-leave").start()
        if self._waiting:
            self._start()

    def _end(self, sequence: StepSequence) -> None:
        sequence.results += [
            StepResult(StepAbandoned("It was not started."), 0.0)
            for _ in range(len(sequence.steps) - len(sequence.results))
        ]
        self._running.remove(sequence)
        self._open -= 1
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    return
                sequence = self._waiting.popleft()
                self._running.append(sequence)
            for step in sequence.steps:
                if not self._finish_step(sequence, step):
                    break
            with self._changed:
                if sequence._is_left:
                    return
                self._end(sequence)

    def _finish_step(self, sequence: StepSequence, step: TimedStep) -> bool:
        with self._changed:
            if sequence._is_left:
                return False
            begun = sequence._begun = time.monotonic()
            seconds = min(step.seconds, sequence.deadline - begun)
            sequence._ends = begun + max(seconds, 0.0) + GRACE_S
            self._changed.notify()
        if seconds <= 0:
            value: Any = StepAbandoned("No time was left.")
        else:
            try:
                value = step.function(seconds)
            except BaseException as error:  # also SystemExit, which must not end the caller
                value = error
        with self._changed:
            if sequence._is_left:
                return False
            sequence.results.append(StepResult(value, time.monotonic() - begun))
            sequence._ends = float("inf")
            return True
