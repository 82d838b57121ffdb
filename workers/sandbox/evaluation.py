"""One evaluation from the caller's side: its pipes, what came through them, and the outcome."""

from __future__ import annotations

import _socket
import os
import select
import time
from contextlib import suppress
from typing import Any

from workers.sandbox import forked, messages, orders
from workers.sandbox.ends import GONE, End
from workers.sandbox.judging import Verifier
from workers.sandbox.messages import Buffer, Malformed
from workers.sandbox.orders import Order, Report
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome, Program, TestJob, TestOutcome
from workers.sandbox.starting import Zygote

MB = 1024 * 1024
_READ = 1 << 16
_BACKSTOP_S = 10.0
"""Beyond the deadline that the zygote holds, or two seconds later for a verifier: then it is the zygote that hangs."""
_FEW_TESTS = 64
"""What is said of so many fits into a socket that nobody reads; of more, its verifier would wait for a reader."""


Task = Job | Program | TestJob


def requests(task: Task, limits: Limits) -> list[bytes]:
    """What its processes are sent, the candidate's first. Raises plain.Unplain for arguments that are not plain."""
    if isinstance(task, TestJob):
        return [messages.source_request(task, limits), messages.tests_request(task, limits)]
    if isinstance(task, Program):
        return [messages.pack({"argv": list(task.argv)}), task.stdin.encode("utf-8", "surrogatepass")]
    return [messages.job_request(task, limits)]


class Evaluation:
    """Lay it ready, begin it, and feed it what poll says of its descriptors until it is `done`."""

    def __init__(self, limits: Limits, number: int, verifier: Verifier | None = None, *, follows: bool = False) -> None:
        """`verifier`: who is to judge it, for a TestJob; it closes that one with itself, but if it `follows` another
        there not before it has begun."""
        self.number = number
        self.place = 0
        """Among those of its call."""
        self.done = False
        self.verifier = verifier
        self.follows = follows
        self.zygote: Zygote | None = None
        """Whose its processes are, once it lies ready."""
        self._first_here = True
        """Whether its verifier has judged nothing else."""
        self._judged = self._short = False
        """Whether all tests have an answer, and whether memory ran short over them."""
        self._task: Task | None = None
        self.limits = limits
        self._sending: dict[int, memoryview] = {}
        self._texts: dict[int, bytearray] = {}
        self._buffers: dict[int, Buffer] = {}
        self._answers: dict[int, list[Any]] = {}
        self._most_answers: dict[int, int] = {}
        self._told: Report | None = None
        self._few = False
        """Whether what its verifier says is short, and read in one go when its candidate has ended."""
        self._open: set[int] = set()
        self._theirs: list[int] = []
        self._report = self._out = self._error = self._channel = self._verdict = -1
        self._ended_as: tuple[Kind, str] | None = None
        self.backstop = 0.0
        self._stdin = -1
        forked.tell(self)

    def lay_ready(self, zygote: Zygote, what: int, begins: int) -> None:
        """Have its processes made; they wait for what they are to run. `what` and `begins`: of the order. Raises
        starting.Gone when the zygote has gone, OSError for what lacks here; then it is closed, and its verifier."""
        self.zygote = zygote
        theirs, limits, verifier = self._theirs, self.limits, self.verifier
        number = jobs = 0
        try:
            self._report = self._pipe(theirs)
            self._out = self._pipe(theirs)
            self._error = self._pipe(theirs)
            self._channel = self._channel_of(theirs)
            if verifier is not None:
                number = verifier.number
                if not verifier.is_started:
                    jobs = verifier.jobs
                    theirs.append(verifier.handed_over())
            elif what == orders.PROGRAM:
                self._stdin = self._pipe_to(theirs)
            memory, disk = limits.memory_mb * MB, limits.disk_mb * MB
            zygote.send(Order(what, self.number, limits.seconds, memory, disk, number, jobs, begins).pack(), theirs)
        except BaseException:
            self.close()
            raise
        finally:
            while theirs:
                os.close(theirs.pop())

    def begin(self, task: Task, sent: list[bytes], poll: select.poll, *, in_haste: bool = False) -> None:
        """Hand over what it is to run. `sent`: its requests. `in_haste`: somebody waits for its place. Raises OSError
        when one of its processes has gone; then it is to be discarded."""
        self._task = task
        self.follows = False
        if self.verifier is not None and not in_haste and isinstance(task, TestJob):
            self._few = len(task.tests) <= _FEW_TESTS
        self.backstop = time.monotonic() + self.limits.seconds + _BACKSTOP_S
        if self.verifier is not None and isinstance(task, TestJob):
            self._take_on(self.verifier, len(task.tests), sent[1])
        self._first_send(self._channel, sent[0])
        if self._stdin >= 0:
            self._first_send(self._stdin, sent[1])
        self._texts = {self._out: bytearray(), self._error: bytearray()}
        for fd in self._open:
            if wanted := self._wanted(fd):
                poll.register(fd, wanted)

    def _take_on(self, verifier: Verifier, tests: int, request: bytes) -> None:
        self._first_here = verifier.judged == 0
        self._verdict = verifier.fd
        self._open.add(verifier.fd)
        self._buffers[verifier.fd] = verifier.buffer
        self._answers[verifier.fd] = []
        self._most_answers[verifier.fd] = tests + 1
        self._first_send(verifier.fd, request)

    def feed(self, fd: int, poll: select.poll) -> None:
        if fd in self._sending:
            self._send(fd, poll)
        self._read(fd, poll)
        if self._all_ended:
            self._finish(poll)
        if not self._open:
            self.done = True

    def _read(self, fd: int, poll: select.poll) -> None:
        if fd == self._report:
            self._read_report(poll)
        elif fd in self._texts:
            self._read_text(fd, poll)
        elif fd in self._buffers:
            self._read_answers(fd, poll)

    def give_up(self, poll: select.poll) -> None:
        """It should have ended long ago: so its zygote hangs, or has gone while a process that was forked from this one
        holds the pipes open."""
        self._drain(poll)
        if not self._all_ended and self.zygote is not None:
            self._ended_as = self._ended_as or (Kind.KILLED, GONE)
            self.zygote.close()
        self._finish(poll)
        self.done = True

    @property
    def is_fresh(self) -> bool:
        """Whether nothing was laid ready for it, and its verifier, if it has one, has judged nothing."""
        return self.zygote is None and (self.verifier is None or not self.verifier.is_started)

    @property
    def descriptors(self) -> set[int]:
        return self._open

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._stop(Kind.KILLED, GONE)
        self.close()

    def discard(self) -> None:
        """It is not begun, and will not be. Its ends may be open in a process that somebody forked, so closing ours
        would not do."""
        if self.zygote is not None:
            with suppress(OSError):
                self.zygote.send(Order(orders.KILL, self.number).pack())
                if self.verifier is not None and not self.follows:
                    self.zygote.send(Order(orders.KILL, self.verifier.number).pack())
        self.close()

    def close(self) -> None:
        """Whatever is open yet. What still runs ends with its deadline, or when the zygote is told."""
        while self._open:
            fd = self._open.pop()
            if fd != self._verdict:
                os.close(fd)
        if self.verifier is not None and not self.follows:
            self.verifier.close()
        for held in (self._sending, self._buffers, self._answers):
            held.clear()

    def left_in_fork(self) -> None:
        """The parent waits for the ends of these pipes."""
        while self._theirs:
            os.close(self._theirs.pop())
        self.close()

    def is_to_be_judged_again(self) -> bool:
        """Whether its verifier failed it, and had judged others before."""
        return self.verifier is not None and not self._first_here and (self._short or not self._judged)

    def parted(self) -> Verifier | None:
        """Its verifier, once that one has judged it and can have another: what is left is the end of its process."""
        verifier = self.verifier
        if verifier is None or not self._judged or self._short or not verifier.takes_another():
            return None
        self.verifier = None
        return verifier

    @property
    def _all_ended(self) -> bool:
        """A verifier goes on, or has closed its end."""
        return self._told is not None and self._verdict not in self._open

    def _finish(self, poll: select.poll) -> None:
        """What its processes wrote before they ended lies in the pipes. No end of file need be waited for, which does
        not come while a process that another thread forked meanwhile has their ends."""
        self._drain(poll)
        for fd in list(self._open):
            self._end(fd, poll)

    def _drain(self, poll: select.poll) -> None:
        while ready := [fd for fd, what in poll.poll(0) if what & ~select.POLLOUT and self._reads(fd)]:
            for fd in ready:
                if fd in self._open:
                    self._read(fd, poll)

    def _reads(self, fd: int) -> bool:
        if fd not in self._open or (fd == self._verdict and self._few and self._report in self._open):
            return False
        return fd in self._buffers or fd in self._texts or fd == self._report

    def _pipe(self, theirs: list[int]) -> int:
        ours, other = os.pipe()
        theirs.append(other)
        self._open.add(ours)
        return ours

    def _channel_of(self, theirs: list[int]) -> int:
        one, other = _socket.socketpair()
        theirs.append(other.detach())
        ours = one.detach()
        os.set_blocking(ours, False)
        self._open.add(ours)
        self._buffers[ours] = Buffer(self.limits.value_bytes + messages.ENVELOPE)
        self._answers[ours] = []
        self._most_answers[ours] = 1
        return ours

    def _pipe_to(self, theirs: list[int]) -> int:
        other, ours = os.pipe()
        theirs.append(other)
        os.set_blocking(ours, False)
        self._open.add(ours)
        return ours

    def _first_send(self, fd: int, data: bytes) -> None:
        sent = os.write(fd, data) if data else 0
        if sent < len(data):
            self._sending[fd] = memoryview(data)[sent:]
        elif fd not in self._buffers:
            self._forget(fd)

    def _wanted(self, fd: int) -> int:
        return (select.POLLIN if self._reads(fd) else 0) | (select.POLLOUT if fd in self._sending else 0)

    def _send(self, fd: int, poll: select.poll) -> None:
        left = self._sending[fd]
        try:
            left = left[os.write(fd, left[: 1 << 20]) :]
        except BlockingIOError:
            return
        except OSError:
            left = left[:0]  # it went without reading all of it
        self._sending[fd] = left
        if left:
            return
        del self._sending[fd]
        if fd not in self._buffers:
            self._end(fd, poll)
        elif wanted := self._wanted(fd):
            poll.modify(fd, wanted)
        else:
            poll.unregister(fd)

    def _read_report(self, poll: select.poll) -> None:
        data = os.read(self._report, orders.REPORT.size)
        self._told = orders.report(data) if data else None
        self._end(self._report, poll)
        if self._verdict in self._open:
            poll.register(self._verdict, self._wanted(self._verdict))
            self._read_answers(self._verdict, poll)

    def _read_text(self, fd: int, poll: select.poll) -> None:
        data = os.read(fd, _READ)
        if not data:
            return self._end(fd, poll)
        text = self._texts[fd]
        text += data
        if len(text) > self.limits.output_bytes:
            del text[self.limits.output_bytes :]
            name = "stdout" if fd == self._out else "stderr"
            self._stop(Kind.OUTPUT, f"It wrote more than {self.limits.output_bytes:,} bytes to {name}.")
            self._end(fd, poll)

    def _read_answers(self, fd: int, poll: select.poll) -> None:
        try:
            data = os.read(fd, _READ)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            return self._end(fd, poll)
        buffer = self._buffers[fd]
        buffer.feed(data)
        try:
            while (body := buffer.next()) is not None:
                if len(self._answers[fd]) == self._most_answers[fd]:
                    raise Malformed("It gave more answers than it was asked for.")  # they would fill this process
                self._answers[fd].append(messages.unpack(body))
                if fd == self._verdict and self._is_judged(self._answers[fd][-1], poll):
                    return
        except Malformed as error:
            if fd != self._verdict:
                self._stop(Kind.ERROR, str(error))
            self._end(fd, poll)

    def _is_judged(self, answer: Any, poll: select.poll) -> bool:
        """Whether this is the last of its verifier's answers; then that one is free for another."""
        if self.verifier is None or not self.verifier.is_through(answer):
            return False
        self._judged = True
        self._short = answer.get("memory") is not False
        poll.unregister(self._verdict)
        self._open.discard(self._verdict)
        self._sending.pop(self._verdict, None)
        return True

    def _end(self, fd: int, poll: select.poll) -> None:
        with suppress(KeyError):  # what is not read yet isn't registered
            poll.unregister(fd)
        self._forget(fd)

    def _forget(self, fd: int) -> None:
        self._open.discard(fd)
        self._sending.pop(fd, None)
        if self.verifier is not None and fd == self._verdict:
            self.verifier.close()
        else:
            os.close(fd)

    def _stop(self, kind: Kind, message: str) -> None:
        if self._ended_as is None:
            self._ended_as = (kind, message)
        if self.zygote is not None:
            with suppress(OSError):  # it has gone, and with it what it should kill
                self.zygote.send(Order(orders.KILL, self.number).pack())

    # What came of it

    def outcome(self) -> Outcome:
        answers = self._answers.get(self._channel, [])
        is_program = isinstance(self._task, Program)
        end = End(self._told, answers[-1] if answers else None, self._ended_as, self.limits, is_program)
        return end.outcome(self._texts.get(self._out, b""), self._texts.get(self._error, b""))

    def test_outcome(self, count: int) -> TestOutcome:
        """`count`: of the tests."""
        candidate = self.outcome()
        missing = candidate.message or "It gave no answer."
        answers = self._answers.get(self._verdict, [])
        return TestOutcome(messages.test_results(answers, count, missing), candidate)
