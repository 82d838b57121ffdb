"""The caller's side of a verifier: a process that runs the tests of several candidates, one after the other.

It never loads what a candidate wrote, so one may serve many of a call's evaluations; each has names of its own there.
That holds for tests which touch nothing beyond them (needs.Reading.closed). Where such a verifier ends early, or runs
short of memory, what it was at is judged again by one of its own: no candidate can do more than to fail itself.
"""

from __future__ import annotations

import _socket
import os

from workers.sandbox import forked, messages, orders
from workers.sandbox.messages import Buffer
from workers.sandbox.outcomes import Limits, TestJob


class Verifier:
    def __init__(self, number: int, jobs: int, limits: Limits) -> None:
        """Of the next order, which is to start it for so many `jobs`."""
        self.number = number
        self.jobs = min(jobs, orders.MOST_JOBS)
        self.judged = 0
        one, other = _socket.socketpair()
        self.fd, self.theirs = one.detach(), other.detach()
        os.set_blocking(self.fd, False)
        self.buffer = Buffer(limits.value_bytes + messages.ENVELOPE)
        self.spent = False
        forked.tell(self)

    @property
    def is_started(self) -> bool:
        return self.theirs < 0

    def handed_over(self) -> int:
        """Its own end, for who starts it; that one closes it."""
        theirs, self.theirs = self.theirs, -1
        return theirs

    def takes_another(self) -> bool:
        return not self.spent and self.fd >= 0 and self.judged < self.jobs

    def is_through(self, answer: object) -> bool:
        """Whether an answer says that all tests of the present candidate are."""
        if type(answer) is not dict or answer.get("done") != self.judged:
            return False
        self.spent = answer.get("spent") is not False
        self.judged += 1
        return True

    def close(self) -> None:
        """It ends when it has read that. Harmless when repeated."""
        for fd in (self.fd, self.theirs):
            if fd >= 0:
                os.close(fd)
        self.fd = self.theirs = -1

    def left_in_fork(self) -> None:
        """The parent waits for what comes from it."""
        self.close()


def shareable(job: TestJob) -> bool:
    """Whether its tests leave nothing behind where they ran."""
    return all((known := messages.known(test)) is not None and known["closed"] for test in job.tests)
