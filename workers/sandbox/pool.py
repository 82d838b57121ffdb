"""The caller's side: evaluations in parallel, each in a fresh fork of a prewarmed interpreter."""

from __future__ import annotations

import itertools
import os
import select
import threading
import time
from collections import deque
from collections.abc import Sequence

from workers.sandbox import forked, orders, plain, starting
from workers.sandbox.evaluation import Evaluation, Task, requests
from workers.sandbox.judging import Verifier, shareable
from workers.sandbox.orders import Order
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
from workers.sandbox.ready import Ready

_DEFAULT = Limits()
_RESTART_TRIES = 3
_MOST_READY = 4
"""Candidates that lie ready between calls, with a verifier each."""
_ORDERS = {Job: orders.JOB, Program: orders.PROGRAM, TestJob: orders.TEST}


class Sandbox:
    """Thread-safe. Close it at the end; it goes with its process all the same."""

    def __init__(
        self, backend: Backend | None = None, *, preload: Sequence[str] = (), parallel: int | None = None
    ) -> None:
        """`backend` None: the best one that holds here, never BARE. `preload`: modules that the prewarmed interpreter
        imports. `parallel`: evaluations at once, None: one a core. Raises SandboxUnavailable."""
        self.backend = backend or _best()
        self._preload = tuple(preload)
        self._parallel = parallel or len(os.sched_getaffinity(0))
        self._take_places()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._closed = False
        self._zygote = starting.start(self.backend, self._preload)
        forked.tell(self)

    backend: Backend

    def run(self, jobs: Sequence[Job | Program], limits: Limits = _DEFAULT) -> list[Outcome]:
        """One outcome a job, in order. Never raises for what the code does."""
        return [each.outcome() if isinstance(each, Evaluation) else each for each in self._evaluate(jobs, limits)]

    def test(self, jobs: Sequence[TestJob], limits: Limits = _DEFAULT) -> list[TestOutcome]:
        """One outcome a job, in order."""
        return [
            each.test_outcome(len(job.tests)) if isinstance(each, Evaluation) else _untested(job, each)
            for job, each in zip(jobs, self._evaluate(jobs, limits), strict=True)
        ]

    def rest(self) -> None:
        """End what lies ready for the next call."""
        self._ready.clear()

    def close(self) -> None:
        """What runs is killed, and answered as killed. Harmless when repeated."""
        with self._lock:
            self._closed = True
        self._zygote.close()
        self._ready.close()

    def left_in_fork(self) -> None:
        """None of the parent's threads is here, nor its zygote: the next evaluation starts one of its own."""
        self._lock = threading.Lock()
        self._take_places()

    def _take_places(self) -> None:
        self._places = threading.BoundedSemaphore(self._parallel)
        self._exits = threading.BoundedSemaphore(self._parallel)
        """For what is judged and comes to its end while another has its place."""
        self._ready = Ready(min(self._parallel, _MOST_READY))

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _evaluate(self, tasks: Sequence[Task], limits: Limits) -> list[Evaluation | Outcome]:
        """All of them, as many at once as there are places for."""
        call = _Call(tasks, limits)
        try:
            while call.waiting or call.running:
                while call.waiting and self._places.acquire(blocking=not call.running):
                    is_running = False
                    try:
                        is_running = self._start(call)
                    finally:
                        if not is_running:
                            self._places.release()
                if call.running:
                    self._turn(call)
        finally:
            for evaluation in set(call.running.values()):
                evaluation.cancel()
                (self._exits if evaluation in call.leaving else self._places).release()
            call.close()
        return call.results

    def _turn(self, call: _Call) -> None:
        """Wait until something happens, and take it up."""
        now = time.monotonic()
        backstop = min(evaluation.backstop for evaluation in call.running.values())
        for fd, _ in call.poll.poll(max(0.0, backstop - now) * 1000 + 1):
            evaluation = call.running.get(fd)
            if evaluation is None or fd not in evaluation.descriptors:
                continue  # it ended by another of its descriptors, in this very round
            evaluation.feed(fd, call.poll)
            if fd not in evaluation.descriptors:
                del call.running[fd]
            self._leave(evaluation, call)
        if time.monotonic() >= backstop:
            for evaluation in {each for each in call.running.values() if each.backstop <= backstop}:
                evaluation.give_up(call.poll)
                self._leave(evaluation, call)

    def _leave(self, evaluation: Evaluation, call: _Call) -> None:
        """Its place is another's when it is judged, as far as there is room to end beside that one, or done."""
        if not evaluation.done:
            if call.waiting and evaluation not in call.leaving and self._exits.acquire(blocking=False):
                if call.leave(evaluation):
                    self._places.release()
                else:
                    self._exits.release()
            return
        (self._exits if call.end(evaluation) else self._places).release()

    def _start(self, call: _Call) -> bool:
        """The next one that waits. False: it already has its outcome."""
        place, alone = call.waiting.popleft()
        call.results[place] = started = self._started(call, call.tasks[place], alone=alone)
        if isinstance(started, Outcome):
            return False
        started.place = place
        call.at_work += 1
        call.running |= dict.fromkeys(started.descriptors, started)
        return True

    def _started(self, call: _Call, task: Task, *, alone: bool) -> Evaluation | Outcome:
        try:
            sent = requests(task, call.limits)
        except plain.Unplain as error:
            return Outcome(Kind.ERROR, message=str(error))
        reason = ""
        for _ in range(_RESTART_TRIES):
            try:
                zygote = self._living()
            except SandboxUnavailable as error:
                reason = str(error)
                break
            evaluation = self._evaluation(call, task, zygote, alone=alone)
            is_fresh = evaluation.is_fresh
            try:
                self._begin(call, evaluation, task, sent, zygote)
            except starting.Gone as error:
                reason = str(error)
                zygote.close()  # it ends just now: its sockets have gone, and itself not quite
            except OSError as error:
                reason = error.strerror or str(error)
                if is_fresh:
                    return Outcome(Kind.KILLED, message=f"It could not be started here: {reason}.", trouble=True)
                call.forget()  # what lay ready has gone, or a verifier that was idle for longer than it may be
                self._ready.clear()
            else:
                return evaluation
        return Outcome(Kind.KILLED, message=f"The sandbox could not be started anew: {reason}", trouble=True)

    def _evaluation(self, call: _Call, task: Task, zygote: starting.Zygote, *, alone: bool) -> Evaluation:
        """One that lies ready, or one that is yet to be laid."""
        number = next(self._numbers)
        if not isinstance(task, TestJob):
            return Evaluation(call.limits, number)
        shared = not alone and shareable(task)
        found = call.next(zygote, number) if shared else None
        if found is not None:
            return found
        found = self._ready.take(call.limits, zygote)
        if found is None:
            jobs = 1 + len(call.waiting) if shared else 1
            return Evaluation(call.limits, number, Verifier(next(self._numbers), jobs, call.limits))
        if not shared and found.verifier is not None:
            found.verifier.jobs = 1
        return found

    def _begin(
        self, call: _Call, evaluation: Evaluation, task: Task, sent: list[bytes], zygote: starting.Zygote
    ) -> None:
        """Raises starting.Gone, and OSError; then it is closed."""
        begins = evaluation.number
        try:
            if evaluation.zygote is None:
                evaluation.lay_ready(zygote, _ORDERS[type(task)], begins)
                begins = 0
            if evaluation.verifier is not None:
                begins = self._lay_following(call, evaluation.verifier, zygote, begins)
            if begins:
                zygote.send(Order(orders.BEGIN, 0, call.limits.seconds, begins=begins).pack())
            evaluation.begin(task, sent, call.poll, in_haste=bool(call.waiting))
        except BaseException:
            evaluation.discard()
            raise

    def _lay_following(self, call: _Call, verifier: Verifier, zygote: starting.Zygote, begins: int) -> int:
        """The one after is forked while this one runs; one order does for both. What is yet to be begun. Raises
        starting.Gone."""
        is_of_call = call.wants_next(verifier, self._parallel - call.at_work - 1)
        if not is_of_call and not self._ready.has_room(call.limits):
            return begins
        if not is_of_call:
            verifier = Verifier(next(self._numbers), len(call.tasks), call.limits)
        following = Evaluation(call.limits, next(self._numbers), verifier, follows=is_of_call)
        try:
            following.lay_ready(zygote, orders.TEST, begins)
            if is_of_call:
                call.lay(following)
            else:
                self._ready.put(following)
        except starting.Gone:
            raise
        except OSError:
            return begins  # what lacks here is told when it is needed
        except BaseException:
            following.discard()
            raise
        return 0

    def _living(self) -> starting.Zygote:
        """The zygote, a new one where the last has gone. Raises SandboxUnavailable."""
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("The sandbox was closed.")
            if not self._zygote.alive():
                self._zygote.close()
                self._zygote = starting.start(self.backend, self._preload)
            return self._zygote


class _Call:
    """One call's evaluations: those that wait, those that run, and the verifiers that could judge another."""

    def __init__(self, tasks: Sequence[Task], limits: Limits) -> None:
        self.tasks = tasks
        self.limits = limits
        self.results: list[Evaluation | Outcome] = [Outcome(Kind.KILLED, trouble=True)] * len(tasks)
        self.waiting = deque((place, False) for place in range(len(tasks)))
        """Of each its place, and whether its verifier must be its own."""
        self.running: dict[int, Evaluation] = {}
        self.at_work = 0
        """Evaluations that have a place."""
        self.leaving: set[Evaluation] = set()
        """Those that are judged and have none any more."""
        self.poll = select.poll()
        self._verifiers: list[Verifier] = []
        self._laid: dict[int, Evaluation] = {}
        """What lies ready, by its verifier's number."""
        self._zygote: starting.Zygote | None = None

    def next(self, zygote: starting.Zygote, number: int) -> Evaluation | None:
        """On a verifier that has judged another and is idle: what lies ready there, or one to be laid."""
        if zygote is not self._zygote:
            self.forget()
            self._zygote = zygote
        if not self._verifiers:
            return None
        verifier = next((each for each in self._verifiers if each.number in self._laid), self._verifiers[0])
        self._verifiers.remove(verifier)
        following = self._laid.pop(verifier.number, None)
        if following is None:
            return Evaluation(self.limits, number, verifier)
        following.follows = False
        return following

    def wants_next(self, verifier: Verifier, free: int) -> bool:
        """Whether this one, which is about to judge, can have another after it, and that is needed: `free` places are
        there for those that wait."""
        return verifier.judged + 1 < verifier.jobs and len(self._laid) < len(self.waiting) - free

    def lay(self, following: Evaluation) -> None:
        if following.verifier is not None:
            self._laid[following.verifier.number] = following

    def leave(self, evaluation: Evaluation) -> bool:
        """If this one is judged, its verifier is another's. Whether it was."""
        verifier = evaluation.parted() if evaluation.zygote is self._zygote else None
        if verifier is None:
            return False
        self._verifiers.append(verifier)
        self.leaving.add(evaluation)
        self.at_work -= 1
        return True

    def end(self, evaluation: Evaluation) -> bool:
        """Of one that is done. Whether it had left its place."""
        has_left = evaluation in self.leaving
        self.leaving.discard(evaluation)
        self.at_work -= not has_left
        for fd in [fd for fd, each in self.running.items() if each is evaluation]:
            del self.running[fd]
        verifier = evaluation.verifier
        if evaluation.is_to_be_judged_again():
            self.waiting.appendleft((evaluation.place, True))
        if verifier is not None and verifier.takes_another() and evaluation.zygote is self._zygote:
            self._verifiers.append(verifier)
        elif verifier is not None:
            self._drop(verifier)
        return has_left

    def forget(self) -> None:
        """The verifiers that judge nobody just now, and what lies ready there."""
        while self._verifiers:
            self._drop(self._verifiers.pop())

    def _drop(self, verifier: Verifier) -> None:
        verifier.close()
        if following := self._laid.pop(verifier.number, None):
            following.discard()

    def close(self) -> None:
        self.forget()
        while self._laid:
            self._laid.popitem()[1].discard()


def _best() -> Backend:
    from workers.sandbox import selftest  # it is made of sandboxes

    return selftest.best()


def _untested(job: TestJob, candidate: Outcome) -> TestOutcome:
    return TestOutcome((TestResult(passed=False, message=candidate.message),) * len(job.tests), candidate)
