"""Messages between the caller, the candidate's process and the verifier's process: 4 bytes of length, then JSON.

A fork inherits open sockets and calls one of three entry points once it is locked down. Each entry point reads its
request from its channel, and when it returns, the fork ends with os._exit(0):

    candidate.run_job(channel)               job_request    -> one result {"kind", "value", "message", "traceback"}
    candidate.serve_candidate(channel, peer) source_request -> the same result, once the module is executed
    verifier.verify(channel, peer)           tests_request  -> {"test", "passed", "message", "needs"} for each test in
                                                               order, as soon as it is known, then LAST

`channel` leads to the caller, `peer` from the candidate to the verifier. The verdict comes over the verifier's channel,
which the candidate's fork must never hold.
"""

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from workers.sandbox import plain_values
from workers.sandbox.outcomes import Job, Limits, TestJob, TestResult
from workers.sandbox.requirements.test_requirements import packed_of_short

LAST_MESSAGE = {"done": True}
MAX_REQUEST_BYTES = 1 << 30
ENVELOPE_BYTES = 1 << 20
"""Number of bytes that a message may have in addition to its value, for a traceback and the overhead of JSON."""
_LENGTH = struct.Struct("!I")
_READ_BYTES = 1 << 16
_write = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_constants: list[str] = []


def _constant(name: str) -> float:
    _constants.append(name)
    return float(name)


_read = json.JSONDecoder(parse_constant=_constant).raw_decode


class Malformed(Exception):
    """Error for an invalid or overlong message. Its text is for people."""


class Closed(Exception):
    """Signal that the other side has closed the connection."""


def pack(value: object, write_other: plain_values.WriteOther | None = None) -> bytes:
    """Return a value as a message. Raises plain_values.NotPlain if it can't be encoded."""
    body = _write(plain_values.encode(value, write_other)).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def unpack(
    body: bytes, readers: Mapping[str, Callable[[Any], Any]] | None = None, *, most_hashed: int | None = None
) -> Any:
    """Return the value of a message. Raises Malformed if the message is invalid, or has more than `most_hashed` values
    in sets and keys."""
    _constants.clear()
    try:
        text = body.decode("ascii")
        value, end = _read(text)
        if end != len(text):
            raise ValueError
        if most_hashed is not None and plain_values.count_hashed(value) > most_hashed:
            raise OverflowError
        return plain_values.decode(value, readers)
    except Exception as error:
        raise Malformed(f"The message can't be read ({type(error).__name__}).") from None


class MessageBuffer:
    """A buffer that collects bytes and returns complete messages."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = bytearray()

    def feed(self, data: bytes) -> None:
        self._bytes += data

    def next(self) -> bytes | None:
        """Remove and return the JSON of the next complete message, or return None if there is none yet. Raises
        Malformed as soon as an overlong message is announced."""
        data = self._bytes
        if not data:
            return None
        try:
            (length,) = _LENGTH.unpack_from(data)
        except struct.error:  # fewer bytes; the candidate may have replaced len(), which would then wait forever
            return None
        if length > self.max_bytes:
            raise Malformed(f"The message has {length:,} bytes; {self.max_bytes:,} are allowed.")
        end = _LENGTH.size + length
        if not data[end - 1 : end]:
            return None
        body = bytes(data[_LENGTH.size : end])
        del data[:end]
        return body


class Channel:
    """One end of a blocking stream socket."""

    readers: Mapping[str, Callable[[Any], Any]] | None = None

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.not_a_number = False
        self._buffer = MessageBuffer(MAX_REQUEST_BYTES)

    def set_limit(self, max_bytes: int) -> None:
        """Change the maximum size of messages."""
        self._buffer.max_bytes = max_bytes

    def send(self, value: object) -> None:
        """Send a plain value. Raises plain_values.NotPlain if it isn't plain, and Closed if the channel is closed."""
        self.write(pack(value))

    def write(self, packed: bytes) -> None:
        remaining = memoryview(packed)
        try:
            while remaining:
                remaining = remaining[os.write(self.fd, remaining) :]
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self) -> Any:
        """Wait for the next message and return its value. Raises Malformed if it is invalid, and Closed if the channel
        is closed."""
        while (body := self._buffer.next()) is None:
            try:
                data = os.read(self.fd, _READ_BYTES)
            except OSError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("The other side has closed the connection.")
            self._buffer.feed(data)
        try:
            return unpack(body, self.readers)
        finally:
            self.not_a_number = "NaN" in _constants


def job_request(job: Job, limits: Limits) -> bytes:
    """Return the request for a job. Raises plain_values.NotPlain for arguments that are not plain."""
    return pack({"source": job.source, "call": job.call, "args": list(job.args), "value_bytes": limits.value_bytes})


def source_request(job: TestJob, limits: Limits) -> bytes:
    """Return the request for the candidate's process, which contains nothing about the tests."""
    return pack({"source": job.source, "value_bytes": limits.value_bytes})


def tests_request(job: TestJob, limits: Limits) -> bytes:
    """Return the request for the verifier's process, which contains nothing about the candidate."""
    return _tests_request(job.tests, limits.value_bytes)


@lru_cache(maxsize=64)
def _tests_request(tests: tuple[str, ...], value_bytes: int) -> bytes:
    return pack({"tests": [[test, packed_of_short(test)] for test in tests], "value_bytes": value_bytes})


def is_last(message: object) -> bool:
    """Return whether a verifier's message says that all its tests have been run."""
    return message == LAST_MESSAGE


def test_results(received: Iterable[Any], count: int, missing: str) -> tuple[TestResult, ...]:
    """Return the results of `count` tests from the verifier's messages. `missing`: why other tests have no result."""
    results = [TestResult(passed=False, message=missing)] * count
    for report in received:
        if type(report) is dict and type(report.get("test")) is int and 0 <= report["test"] < count:
            message, needs = str(report.get("message", "")), str(report.get("needs", ""))
            results[report["test"]] = TestResult(report.get("passed") is True and not needs, message, needs)
    return tuple(results)
