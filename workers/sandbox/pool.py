"""The caller's side of the sandbox, which runs evaluations in parallel, each in new forks of an interpreter."""

import itertools
import os
import select
import threading
import time
from collections.abc import Sequence

from workers.sandbox import plain_values, zygote_process
from workers.sandbox.evaluation import Evaluation, Task, requests
from workers.sandbox.layout import PackageInterpreter
from workers.sandbox.outcomes import (
    Backend,
    Job,
    Kind,
    Limits,
    Outcome,
    Program,
    SandboxUnavailable,
    TestJob,
    TestOutcome,
    TestResult,
)
from workers.sandbox.zygote_process import ZygoteProcess

_DEFAULT = Limits()
_MAX_START_ATTEMPTS = 3


class Sandbox:
    """A thread-safe sandbox with its own zygote. Close it at the end; it also ends with its process."""

    backend: Backend

    def __init__(
        self,
        backend: Backend,
        *,
        preload: Sequence[str] = (),
        parallel: int | None = None,
        interpreter: PackageInterpreter | None = None,
    ) -> None:
        """Start a zygote. `preload`: modules that the prewarmed interpreter imports. `parallel`: the maximum number of
        concurrent evaluations, by default one per core. `interpreter`: the interpreter to use instead of the current
        one. Raises SandboxUnavailable if it can't be started."""
        self.backend = backend
        self._preload = tuple(preload)
        self._interpreter = interpreter
        self._parallel = parallel or len(os.sched_getaffinity(0))
        self._slots = threading.BoundedSemaphore(self._parallel)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._zygote = zygote_process.start(self.backend, self._preload, self._interpreter)
        zygote_process.close_in_forks(self)

    def run(self, jobs: Sequence[Job | Program], limits: Limits = _DEFAULT) -> list[Outcome]:
        """Run jobs, and return their outcomes in order. Exceptions of the code are never raised here."""
        results = self._evaluate(jobs, limits)
        return [result.outcome() if isinstance(result, Evaluation) else result for result in results]

    def test(self, jobs: Sequence[TestJob], limits: Limits = _DEFAULT) -> list[TestOutcome]:
        """Run test jobs, and return their outcomes in order."""
        return [
            result.test_outcome(len(job.tests)) if isinstance(result, Evaluation) else _untested(job, result)
            for job, result in zip(jobs, self._evaluate(jobs, limits), strict=True)
        ]

    def call(self, job: Job, limits: Limits = _DEFAULT) -> Outcome:
        """Run a job immediately, for tools (which mostly wait), and return its outcome. It uses none of the slots that
        keep evaluations from slowing each other down, so the caller has to limit the number of calls."""
        [result] = self._evaluate([job], limits, threading.BoundedSemaphore())
        return result.outcome() if isinstance(result, Evaluation) else result

    def close(self) -> None:
        """Kill the running evaluations, whose outcomes are then KILLED. May be called repeatedly."""
        with self._lock:
            self._closed = True
        self._zygote.close()

    def after_fork(self) -> None:
        """Reset the locks that the parent's threads held when this process was forked. The fork's next evaluation
        starts its own zygote."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self._parallel)

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _evaluate(
        self, tasks: Sequence[Task], limits: Limits, slots: threading.BoundedSemaphore | None = None
    ) -> list[Evaluation | Outcome]:
        slots = slots or self._slots
        results: list[Evaluation | Outcome] = []
        running: list[Evaluation] = []
        poll = select.poll()
        try:
            while len(results) < len(tasks) or running:
                while len(results) < len(tasks) and slots.acquire(blocking=not running):
                    started: Evaluation | Outcome | None = None
                    try:
                        started = self._start(tasks[len(results)], limits, poll)
                    finally:
                        if not isinstance(started, Evaluation):
                            slots.release()
                    results.append(started)
                    if isinstance(started, Evaluation):
                        running.append(started)
                if running:
                    _wait(running, poll)
                for evaluation in [evaluation for evaluation in running if evaluation.ended]:
                    running.remove(evaluation)
                    slots.release()
        finally:
            for evaluation in running:
                evaluation.cancel()
                slots.release()
        return results

    def _start(self, task: Task, limits: Limits, poll: select.poll) -> Evaluation | Outcome:
        try:
            messages = requests(task, limits)
        except plain_values.NotPlain as error:
            return Outcome(Kind.ERROR, message=str(error))
        failure = ""
        for _ in range(_MAX_START_ATTEMPTS):
            try:
                zygote = self._living_zygote()
            except SandboxUnavailable as error:
                failure = str(error)
                break
            evaluation = Evaluation(task, limits, next(self._numbers), poll)
            try:
                evaluation.start(zygote, messages)
            except zygote_process.Gone as error:
                failure = str(error)
                zygote.close()  # its sockets are already closed
            except OSError as error:
                reason = error.strerror or str(error)
                return Outcome(Kind.KILLED, message=f"It could not be started here: {reason}.", trouble=True)
            else:
                return evaluation
        return Outcome(Kind.KILLED, message=f"The sandbox could not be restarted: {failure}", trouble=True)

    def _living_zygote(self) -> ZygoteProcess:
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("The sandbox was closed.")
            if not self._zygote.alive():
                self._zygote.close()
                self._zygote = zygote_process.start(self.backend, self._preload, self._interpreter)
            return self._zygote


def _wait(running: Sequence[Evaluation], poll: select.poll) -> None:
    by_descriptor = {fd: evaluation for evaluation in running for fd in evaluation.descriptors}
    backstop = min(evaluation.backstop for evaluation in running)
    for fd, _ in poll.poll(max(0.0, backstop - time.monotonic()) * 1000 + 1):
        evaluation = by_descriptor[fd]
        if fd in evaluation.descriptors:  # otherwise it was closed in this round
            evaluation.feed(fd)
    if time.monotonic() >= backstop:
        for evaluation in running:
            if evaluation.backstop <= backstop and not evaluation.ended:
                evaluation.give_up()


def _untested(job: TestJob, candidate: Outcome) -> TestOutcome:
    return TestOutcome((TestResult(passed=False, message=candidate.message),) * len(job.tests), candidate)
