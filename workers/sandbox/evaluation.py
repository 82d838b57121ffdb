"""The caller's side of an evaluation: its pipes, the data received, and the outcome."""

import os
import select
import signal
import socket
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from workers.sandbox import messages, zygote_process, zygote_protocol
from workers.sandbox.messages import Malformed, MessageBuffer
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome, Program, TestJob, TestOutcome
from workers.sandbox.zygote_process import ZygoteProcess
from workers.sandbox.zygote_protocol import REPORT_BYTES, ExitReport, ForkOrder

ZYGOTE_GONE = "The sandbox's own process ended; it was restarted."
MB = 1024 * 1024
_KINDS_WITH_RESULT = (Kind.OK, Kind.ERROR, Kind.MEMORY)
_READ_BYTES = 1 << 16
_MAX_HASHED = 1000
"""Maximum number of values in the sets and keys of a message, because more values with colliding hashes would block
this process."""
_BACKSTOP_S = 10.0
"""Seconds after the deadline, which the zygote enforces, until the zygote itself is considered hung."""

Task = Job | Program | TestJob
_ORDERS = {Job: zygote_protocol.JOB, Program: zygote_protocol.PROGRAM, TestJob: zygote_protocol.TEST}


def requests(task: Task, limits: Limits) -> list[bytes]:
    """Return the messages to a task's processes: the channel's request, and then the verifier's request or the standard
    input. Raises plain_values.NotPlain for arguments that are not plain."""
    if isinstance(task, TestJob):
        return [messages.source_request(task, limits), messages.tests_request(task, limits)]
    if isinstance(task, Program):
        return [messages.pack({"argv": list(task.argv)}), task.stdin.encode("utf-8", "surrogatepass")]
    stdin = [] if task.stdin is None else [task.stdin.encode("utf-8", "replace")]
    return [messages.job_request(task, limits), *stdin]


@dataclass
class _ReceivedMessages:
    """The messages received over one channel."""

    buffer: MessageBuffer
    limit: int
    """Maximum number of messages, because more could exhaust this process's memory."""
    received: list[Any] = field(default_factory=list)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


class Evaluation:
    """An evaluation in progress. Call `start`, then `feed` with descriptors that poll reports, until it has `ended`."""

    def __init__(self, task: Task, limits: Limits, number: int, poll: select.poll) -> None:
        self.backstop = 0.0
        """When the evaluation will be given up, by time.monotonic()."""
        self._task = task
        self._limits = limits
        self._number = number
        self._poll = poll
        self._zygote: ZygoteProcess | None = None
        self._open: set[int] = set()
        self._remote_ends: list[int] = []
        self._unsent: dict[int, memoryview] = {}
        self._outputs: dict[int, bytearray] = {}
        self._messages: dict[int, _ReceivedMessages] = {}
        self._report = self._out = self._error = self._channel = self._verdict = -1
        self._exit: ExitReport | None = None
        self._stopped: tuple[Kind, str] | None = None
        zygote_process.close_in_forks(self)

    def start(self, zygote: ZygoteProcess, requests: list[bytes]) -> None:
        """Send the evaluation to the zygote. Raises zygote_process.Gone if the zygote has ended, and OSError if
        resources are lacking; the evaluation is then closed."""
        self._zygote, limits = zygote, self._limits
        memory, disk = limits.memory_mb * MB, limits.disk_mb * MB
        reads = isinstance(self._task, Job) and self._task.stdin is not None
        kind = zygote_protocol.READING_JOB if reads else _ORDERS[type(self._task)]
        order = ForkOrder(kind, self._number, limits.seconds, memory, disk)
        try:
            self._open_pipes(requests)
            zygote.send(order.pack(), self._remote_ends)
        except BaseException:
            self.close()
            raise
        finally:
            self._close_remote_ends()
        self.backstop = time.monotonic() + limits.seconds + _BACKSTOP_S
        for fd in self._open:
            self._poll.register(fd, self._events(fd))

    @property
    def ended(self) -> bool:
        return not self._open

    @property
    def descriptors(self) -> set[int]:
        return self._open

    def feed(self, fd: int) -> None:
        """Write to or read from a descriptor that is ready."""
        if fd in self._unsent:
            self._send(fd)
        if fd in self._open:
            self._read(fd)
        if self._all_ended:
            # Don't wait for the end of file: a process that another thread has forked may hold the other ends.
            self._drain()
            self.close()

    def give_up(self) -> None:
        """Give up after the backstop: the zygote hangs, or it is dead while a fork of this process holds its pipes."""
        self._drain()
        if not self._all_ended and self._zygote is not None:
            self._stopped = self._stopped or (Kind.KILLED, ZYGOTE_GONE)
            self._zygote.close()
        self.close()

    def cancel(self) -> None:
        """Cancel the evaluation, because nobody is waiting for it any longer."""
        self._stop(Kind.KILLED, ZYGOTE_GONE)
        self.close()

    def close(self) -> None:
        for fd in list(self._open):
            self._close(fd)
        self._close_remote_ends()

    def after_fork(self) -> None:
        """Close this fork's copies of the pipes, so that the parent sees their end of file."""
        self._poll = select.poll()
        self.close()

    def outcome(self) -> Outcome:
        """Return the outcome. Call it once the evaluation has ended."""
        report, (kind, message) = self._exit, self._kind_and_message()
        result = self._last_message if kind in _KINDS_WITH_RESULT and self._stopped is None else {}
        value = report.status >> 8 if isinstance(self._task, Program) and report and kind is Kind.OK else None
        return Outcome(
            kind=kind,
            value=result.get("value") if kind is Kind.OK and result else value,
            stdout=self._outputs.get(self._out, b"").decode("utf-8", "replace"),
            stderr=self._outputs.get(self._error, b"").decode("utf-8", "replace"),
            seconds=report.seconds if report else 0.0,
            message=message,
            traceback=_string(result.get("traceback")),
            trouble=self._is_trouble(),
        )

    def test_outcome(self, count: int) -> TestOutcome:
        """Return the outcome of a test job with `count` tests. Call it once the evaluation has ended."""
        candidate = self.outcome()
        received = self._messages[self._verdict].received if self._verdict in self._messages else []
        missing = candidate.message or "It reported no result."
        return TestOutcome(messages.test_results(received, count, missing), candidate)

    @property
    def _last_message(self) -> dict[str, Any]:
        """Last message on the channel if it is an object, {} otherwise. The process may lie, but only about itself."""
        received = self._messages[self._channel].received if self._channel in self._messages else []
        return received[-1] if received and isinstance(received[-1], dict) else {}

    def _is_trouble(self) -> bool:
        if self._stopped is not None:
            return self._stopped[1] is ZYGOTE_GONE
        return self._exit is None or self._exit.end == zygote_protocol.NEVER_BEGAN

    def _kind_and_message(self) -> tuple[Kind, str]:
        report = self._exit
        if self._stopped is not None:
            return self._stopped
        if report is None:
            return Kind.KILLED, ZYGOTE_GONE
        if report.end == zygote_protocol.NEVER_BEGAN:
            return Kind.KILLED, f"No process could be started: {os.strerror(report.status)}"
        ran_out_of_processor_time = report.processor_seconds > self._limits.seconds
        signal_number = os.WTERMSIG(report.status) if os.WIFSIGNALED(report.status) else 0
        if report.end == zygote_protocol.DEADLINE or (signal_number == signal.SIGKILL and ran_out_of_processor_time):
            return Kind.TIMEOUT, f"It took longer than {self._limits.seconds:g} s."
        result = self._last_message
        was_reported = result.get("kind") in (*_KINDS_WITH_RESULT, Kind.KILLED)
        if was_reported and (not signal_number or report.end == zygote_protocol.KILLED_ON_ORDER):
            return Kind(result["kind"]), _string(result.get("message"))
        if signal_number:
            return Kind.KILLED, f"It was killed by {signal.Signals(signal_number).name}."
        if isinstance(self._task, Program):
            return Kind.OK, ""
        return Kind.ERROR, f"It ended early with exit code {os.waitstatus_to_exitcode(report.status)}."

    # Pipes and sockets, all of them non-blocking

    def _open_pipes(self, requests: list[bytes]) -> None:
        # In the order of zygote_protocol.
        task = self._task
        self._report, self._out, self._error = self._pipe(), self._pipe(), self._pipe()
        self._outputs = {self._out: bytearray(), self._error: bytearray()}
        self._channel = self._socket(1)
        self._unsent[self._channel] = memoryview(requests[0])
        if isinstance(task, TestJob):
            self._verdict = self._socket(len(task.tests) + 1)
            self._unsent[self._verdict] = memoryview(requests[1])
        elif len(requests) > 1:
            remote, local = os.pipe()
            self._register(local, remote)
            self._unsent[local] = memoryview(requests[1])

    def _pipe(self) -> int:
        local, remote = os.pipe()
        return self._register(local, remote)

    def _socket(self, max_messages: int) -> int:
        local, remote = socket.socketpair()
        fd = self._register(local.detach(), remote.detach())
        self._messages[fd] = _ReceivedMessages(
            MessageBuffer(self._limits.value_bytes + messages.ENVELOPE_BYTES), max_messages
        )
        return fd

    def _register(self, local: int, remote: int) -> int:
        self._open.add(local)
        self._remote_ends.append(remote)
        os.set_blocking(local, False)
        return local

    def _close_remote_ends(self) -> None:
        while self._remote_ends:
            os.close(self._remote_ends.pop())

    def _close(self, fd: int) -> None:
        with suppress(KeyError):
            self._poll.unregister(fd)
        self._open.discard(fd)
        self._unsent.pop(fd, None)
        os.close(fd)

    def _events(self, fd: int) -> int:
        is_read = fd in self._messages or fd in self._outputs or fd == self._report
        return (select.POLLIN if is_read else 0) | (select.POLLOUT if fd in self._unsent else 0)

    def _send(self, fd: int) -> None:
        unsent = self._unsent[fd]
        try:
            unsent = unsent[os.write(fd, unsent[: 1 << 20]) :] if unsent else unsent
        except BlockingIOError:
            return
        except OSError:
            unsent = unsent[:0]  # the other side ended without reading all of it
        self._unsent[fd] = unsent
        if unsent:
            return
        del self._unsent[fd]
        if events := self._events(fd):
            self._poll.modify(fd, events)
        else:
            self._close(fd)

    # Received data

    @property
    def _all_ended(self) -> bool:
        return self._exit is not None and self._verdict not in self._open

    def _drain(self) -> None:
        for fd in list(self._open):
            while fd in self._open and self._read(fd):
                pass

    def _read(self, fd: int) -> bool:
        if not (fd in self._messages or fd in self._outputs or fd == self._report):
            return False
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return False
        except ConnectionError:
            data = b""
        if not data:
            self._close(fd)
        elif fd == self._report:
            self._exit = ExitReport.unpack(data[:REPORT_BYTES])
            self._close(fd)
        elif fd in self._outputs:
            self._receive_output(fd, data)
        else:
            self._receive_messages(fd, data)
        return bool(data)

    def _receive_output(self, fd: int, data: bytes) -> None:
        output, limit = self._outputs[fd], self._limits.output_bytes
        output += data
        if len(output) > limit:
            del output[limit:]
            self._stop(
                Kind.OUTPUT, f"It wrote more than {limit:,} bytes to {'stdout' if fd == self._out else 'stderr'}."
            )
            self._close(fd)

    def _receive_messages(self, fd: int, data: bytes) -> None:
        channel = self._messages[fd]
        channel.buffer.feed(data)
        try:
            while (body := channel.buffer.next()) is not None:
                if len(channel.received) == channel.limit:
                    raise Malformed("It sent more messages than were requested.")
                channel.received.append(messages.unpack(body, most_hashed=_MAX_HASHED))
                if fd == self._verdict and messages.is_last(channel.received[-1]):
                    return self._close(fd)
        except Malformed as error:
            if fd != self._verdict:
                self._stop(Kind.ERROR, str(error))
            self._close(fd)

    def _stop(self, kind: Kind, message: str) -> None:
        if self._stopped is None:
            self._stopped = (kind, message)
        if self._zygote is not None:
            with suppress(OSError):  # the zygote has ended, and its forks with it
                self._zygote.send(ForkOrder(zygote_protocol.KILL, self._number).pack())
