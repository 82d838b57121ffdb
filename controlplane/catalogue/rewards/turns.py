"""This process's sandbox and endpoints, opened on first use and shared by all requests.

A request begins a TrialTurn: until its deadline it may run code, one slice at a time, so that other requests' slices
run in between. workers.sandbox decides which backend works on this machine; if none does, nothing runs and the turn
reports the reason. Rewards are scored in children (`scored`), each of which has a sandbox of its own.
"""

import atexit
import itertools
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from workers.rewards.tools import Endpoint, Tools, Unavailable
from workers.sandbox.outcomes import Job, Limits, Outcome, Program, SandboxUnavailable, TestJob, TestOutcome
from workers.sandbox.pool import Sandbox
from workers.sandbox.selftest import best as best_backend

MAX_SLICES = 2
"""Maximum number of concurrent slices over all requests."""
SLICE_SIZE = len(os.sched_getaffinity(0))
"""Number of evaluations per slice: one per core."""
POLL_S = 0.2
MAX_REQUESTERS = 500
_DEFAULT = Limits()

JobT = TypeVar("JobT")
OutcomeT = TypeVar("OutcomeT")


class OutOfTime(Unavailable):
    """Signal that a turn ended before everything was scored."""

    def __init__(self) -> None:
        super().__init__("Scoring timed out.")


@dataclass
class TrialTurn:
    """A request's permission to use the shared tools until its deadline."""

    until: float
    """Deadline by the monotonic clock. A running evaluation continues up to its own limits."""
    is_wanted: Callable[[], bool] = lambda: True
    """Function that returns whether the client still waits for the response."""
    find_endpoint: Callable[[str], Endpoint] = field(default_factory=lambda: endpoint)
    find_corpus: Callable[[str], Path] = field(default_factory=lambda: file_of)
    unavailable: str = ""
    """Reason why code can't run here, set when some was tried; "" if it can."""
    late: bool = False
    """True if the end of the turn prevented an evaluation."""
    tools: Tools = field(init=False)

    def __post_init__(self) -> None:
        self.tools = Tools(open_sandbox=self._open, endpoint=self.find_endpoint, corpus=self.find_corpus)

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until or not self.is_wanted()

    def _open(self, preload: tuple[str, ...]) -> Sandbox:
        try:
            return _TurnSandbox(self, shared_sandbox(preload))
        except SandboxUnavailable as error:
            self.unavailable = str(error)
            raise

    @contextmanager
    def slice(self) -> Iterator[None]:
        """Wait until a slice may be evaluated, and reserve its place during the block. Raises OutOfTime if the turn's
        time is over."""
        while not self.over:
            if _room.acquire(timeout=POLL_S):
                try:
                    yield
                finally:
                    _room.release()
                return
        self.late = True
        raise OutOfTime


def turn(seconds: float, *, requester: str = "") -> TrialTurn:
    """Begin a turn of `seconds`. If `requester`, the id of a client, begins another turn, this one ends."""
    if not requester:
        return TrialTurn(until=time.monotonic() + seconds)
    number = next(_numbers)
    with _lock:
        _newest[requester] = number
        _newest.move_to_end(requester)
        while len(_newest) > MAX_REQUESTERS:
            _newest.popitem(last=False)
    return TrialTurn(until=time.monotonic() + seconds, is_wanted=lambda: _newest.get(requester, number) == number)


def shared_sandbox(preload: tuple[str, ...]) -> Sandbox:
    """Return the process's sandbox with these modules imported, opening it if necessary. Raises SandboxUnavailable if
    it can't be started."""
    return _tools().sandbox(*preload)


def close() -> None:
    """Close the shared tools; the next request opens them again."""
    with _lock:
        opened, _open_tools[:] = list(_open_tools), []
    for tools in opened:
        tools.close()


class _TurnSandbox(Sandbox):
    """The shared sandbox during one request's turn; closing it has no effect."""

    def __init__(self, request_turn: TrialTurn, inner: Sandbox) -> None:
        self._request, self._shared, self.backend = request_turn, inner, inner.backend

    def run(self, jobs: Sequence[Job | Program], limits: Limits = _DEFAULT) -> list[Outcome]:
        return self._sliced(lambda chunk: self._shared.run(chunk, limits), jobs)

    def test(self, jobs: Sequence[TestJob], limits: Limits = _DEFAULT) -> list[TestOutcome]:
        return self._sliced(lambda chunk: self._shared.test(chunk, limits), jobs)

    def call(self, job: Job, limits: Limits = _DEFAULT) -> Outcome:
        with self._request.slice():
            return self._shared.call(job, limits)

    def close(self) -> None:
        pass

    def _sliced(self, evaluate: Callable[[Sequence[JobT]], list[OutcomeT]], jobs: Sequence[JobT]) -> list[OutcomeT]:
        outcomes: list[OutcomeT] = []
        for start in range(0, len(jobs), SLICE_SIZE):
            with self._request.slice():
                outcomes += evaluate(jobs[start : start + SLICE_SIZE])
        return outcomes


def _tools() -> Tools:
    with _lock:
        if not _open_tools:

            def sandbox(preload: tuple[str, ...]) -> Sandbox:
                return Sandbox(best_backend(), preload=preload)

            _open_tools.append(Tools(open_sandbox=sandbox, endpoint=endpoint, corpus=file_of))
        return _open_tools[0]


def endpoint(name: str) -> Endpoint:
    from controlplane.platform.accounts.vault import endpoint_for_trial  # noqa: PLC0415  children have no database

    return endpoint_for_trial(name)


def file_of(title: str) -> Path:
    from controlplane.catalogue.datasets.corpora import queries  # noqa: PLC0415  children have no database

    return queries.file_of(title)


_lock = threading.Lock()
_room = threading.BoundedSemaphore(MAX_SLICES)
_open_tools: list[Tools] = []
_numbers = itertools.count(1)
_newest: OrderedDict[str, int] = OrderedDict()
atexit.register(close)
