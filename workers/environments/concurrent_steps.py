"""Functions that may block, run side by side with a time-out each. Results stand where the functions stood.

A blocked function is left behind: its thread is a daemon's, its place is taken by another, and `leave` is told, so that
what it waits for can be closed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

GRACE_S = 0.5
"""Behind a step's time, for a function that ends by itself in time and has to tell so."""


class Left(TimeoutError):
    """It was left behind."""


@dataclass(frozen=True)
class Step:
    function: Callable[[float], Any]
    """Gets the seconds that it may take."""
    seconds: float
    """At most; less where the task's deadline comes first."""


@dataclass
class Done:
    value: Any
    """An exception stands for itself."""
    seconds: float


@dataclass
class Task:
    """Steps carried out one after another."""

    steps: Sequence[Step]
    deadline: float = float("inf")
    """By time.monotonic()."""
    leave: Callable[[], None] = lambda: None
    """Called in a thread of its own when a step was left behind. The steps after it are not begun."""
    results: list[Done] = field(default_factory=list)
    """One for each step when `run` has ended."""
    _begun: float = 0.0
    _ends: float = float("inf")
    _left: bool = False


def run(tasks: Sequence[Task], *, at_once: int) -> None:
    """Carry out all tasks, at most `at_once` of them at a time. Raises nothing of theirs."""
    _Round(tasks, at_once).run()


class _Round:
    def __init__(self, tasks: Sequence[Task], at_once: int) -> None:
        self._waiting = deque(tasks)
        self._running: list[Task] = []
        self._open = len(tasks)
        self._at_once = at_once
        self._changed = threading.Condition()

    def run(self) -> None:
        with self._changed:
            for _ in range(min(self._at_once, len(self._waiting))):
                self._start()
            while self._open:
                now = time.monotonic()
                for task in [one for one in self._running if one._ends <= now]:
                    self._leave(task, now)
                if self._open:
                    soonest = min((one._ends for one in self._running), default=now + 1)
                    self._changed.wait(min(max(soonest - now, 0.0), 1.0))

    def _start(self) -> None:
        threading.Thread(target=self._work, daemon=True, name="episode-call").start()

    def _leave(self, task: Task, now: float) -> None:
        task._left = True
        task.results.append(Done(Left("It took too long."), now - task._begun))
        self._end(task)
        threading.Thread(target=task.leave, daemon=True, name="episode-leave").start()
        if self._waiting:
            self._start()

    def _end(self, task: Task) -> None:
        task.results += [Done(Left("It was not begun."), 0.0) for _ in range(len(task.steps) - len(task.results))]
        self._running.remove(task)
        self._open -= 1
        self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    return
                task = self._waiting.popleft()
                self._running.append(task)
            for step in task.steps:
                if not self._carried_out(task, step):
                    break
            with self._changed:
                if task._left:
                    return
                self._end(task)

    def _carried_out(self, task: Task, step: Step) -> bool:
        with self._changed:
            if task._left:
                return False
            begun = task._begun = time.monotonic()
            seconds = min(step.seconds, task.deadline - begun)
            task._ends = begun + max(seconds, 0.0) + GRACE_S
            self._changed.notify()
        if seconds <= 0:
            value: Any = Left("No time was left.")
        else:
            try:
                value = step.function(seconds)
            except BaseException as error:  # also SystemExit: whatever it is, it isn't the caller's end
                value = error
        with self._changed:
            if task._left:
                return False
            task.results.append(Done(value, time.monotonic() - begun))
            task._ends = float("inf")
            return True
