"""Messages between caller, candidate's process and verifier's: 4 bytes of length, then JSON of plain values.

A fork is handed open sockets and calls one of three entry points when it is locked in. Each reads its own request from
its channel, and when it returns the fork ends with os._exit(0):

    candidate.run_job(channel)              job_request    -> one answer {"kind", "value", "message", "traceback"}
    candidate.serve_candidate(channel, peer) source_request -> one answer of that form once the module is executed;
                                                           that request alone is no JSON: 8 bytes, then the source
    verifier.verify(channel, *peers)        tests_request of one candidate after another's
                                                           -> {"test", "passed", "message", "needs"} for each test in
                                                              order, as soon as it is known, then {"done": 0, 1, 2 ...}

`channel` leads to the caller, `peer` from the candidate to the verifier. The verifier's channel is where the verdict
comes from: the candidate's fork must never hold it.
"""

from __future__ import annotations

import json
import marshal
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

from workers.sandbox import ahead, needs, plain, syntax
from workers.sandbox.ahead import OnlyCall
from workers.sandbox.outcomes import Job, Limits, TestJob, TestResult

LONGEST_REQUEST = 1 << 30
SHORT_TEST = 4_000
"""Characters of a test that a caller reads itself."""
ENVELOPE = 1 << 20
"""Bytes of a message beside its value: a traceback, and how JSON writes what is plain."""
_KEPT = 64
"""Requests with tests: the completions of a group have theirs in common."""
_LENGTH = struct.Struct("!I")
_SOURCE = struct.Struct("!Q")
"""The limit on a value's bytes."""
_write = json.JSONEncoder(check_circular=False, separators=(",", ":")).encode
_READ = 1 << 16
_CALL = b"!"
"""The first byte of a call that isn't JSON."""
_NONCE = 32
"""Its characters."""
_seen: list[str] = []
"""Constants beyond JSON's own in what was read: NaN, Infinity."""


def _constant(name: str) -> float:
    _seen.append(name)
    return float(name)


_read = json.JSONDecoder().raw_decode
_read_noting = json.JSONDecoder(parse_constant=_constant).raw_decode


class Malformed(Exception):
    """What came is no message, or a longer one than may come. For people."""


class Closed(Exception):
    """The other side has gone."""


def pack(value: object, more: plain.More | None = None) -> bytes:
    """Raises plain.Unplain."""
    body = _write(plain.encode(value, more)).encode("ascii")
    return _LENGTH.pack(len(body)) + body


def unpack(
    body: bytes,
    more: Mapping[str, Callable[[Any], Any]] | None = None,
    read: Callable[[str], tuple[Any, int]] = _read,
) -> Any:
    """Of the JSON alone. Raises Malformed, whatever came."""
    try:
        text = body.decode("ascii")
        value, end = read(text)
        if end != len(text):
            raise ValueError
        return plain.decode(value, more)
    except Exception as error:
        raise Malformed(f"What came can't be read ({type(error).__name__}).") from None


def packed_call(only: OnlyCall | None) -> bytes | None:
    """Of a test that has one, if it is short enough to be asked ahead. It is marshalled, so this is for what a test's
    text holds, on its way to a candidate: nothing that a candidate gave may be read so."""
    packed = None if only is None else marshal.dumps((only.name, only.args), 2)
    return packed if packed is None or len(packed) <= ahead.MOST_BYTES else None


def with_nonce(packed: bytes, nonce: str) -> bytes:
    """The message for a packed_call."""
    return _LENGTH.pack(len(_CALL) + _NONCE + len(packed)) + _CALL + nonce.encode("ascii") + packed


def pack_atom(nonce: str, value: int | bool) -> bytes:
    """As pack({"nonce": nonce, "value": value}), by way of fewer objects."""
    text = "true" if value is True else "false" if value is False else int.__repr__(value)
    body = f'{{"m":{{"nonce":"{nonce}","value":{text}}}}}'.encode("ascii")
    return _LENGTH.pack(len(body)) + body


class Buffer:
    """Takes bytes as they come, gives the messages that are whole."""

    def __init__(self, longest: int) -> None:
        """`longest`: bytes that one message may have."""
        self.longest = longest
        self._held = bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def next(self) -> bytes | None:
        """The JSON of the next whole message. Raises Malformed as soon as one is announced that is too long."""
        held = self._held
        if not held:
            return None
        try:
            (length,) = _LENGTH.unpack_from(held)
        except struct.error:  # fewer bytes; len() may be the candidate's own by now, and would wait for ever
            return None
        if length > self.longest:
            raise Malformed(f"The answer has {length:,} bytes; {self.longest:,} are allowed.")
        end = _LENGTH.size + length
        if not held[end - 1 : end]:
            return None
        body = bytes(held[_LENGTH.size : end])
        del held[:end]
        return body


class Channel:
    """One end of a stream socket, blocking. `more`: what is read beyond plain values, by its tag."""

    more: Mapping[str, Callable[[Any], Any]] | None = None

    def __init__(self, fd: int, longest: int = LONGEST_REQUEST) -> None:
        self.fd = fd
        self.not_a_number = False
        """Whether a NaN was in the last message."""
        self._buffer = Buffer(longest)

    def bound(self, longest: int) -> None:
        """From now on."""
        self._buffer.longest = longest

    def send(self, value: object) -> None:
        """Raises plain.Unplain, and Closed."""
        self.write(pack(value))

    def write(self, packed: bytes) -> None:
        left = memoryview(packed)
        try:
            while left:
                left = left[os.write(self.fd, left) :]
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self) -> Any:
        """The next message. Raises Malformed, and Closed."""
        return self.read(self.receive_body())

    def read(self, body: bytes) -> Any:
        """A message that came. Raises Malformed."""
        _seen.clear()
        try:
            return unpack(body, self.more, _read_noting)
        finally:
            self.not_a_number = "NaN" in _seen

    def receive_call(self) -> Any:
        """As receive, for a candidate."""
        body = self.receive_body()
        if body[:1] != _CALL:
            return unpack(body, self.more)
        name, args = marshal.loads(body[1 + _NONCE :])  # noqa: S302  of its verifier, and of a test's text
        return {"nonce": body[1 : 1 + _NONCE].decode("ascii"), "name": name, "args": args, "kwargs": {}}

    def receive_source(self) -> tuple[str, int]:
        """Of a source_request: the source, and the bytes that a value may have. Raises Closed."""
        body = self.receive_body()
        return body[_SOURCE.size :].decode("utf-8", "surrogatepass"), _SOURCE.unpack_from(body)[0]

    def receive_body(self) -> bytes:
        """The next message as it came. Raises Malformed for one that is too long, and Closed."""
        while (body := self._buffer.next()) is None:
            try:
                data = os.read(self.fd, _READ)
            except OSError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("The other side has gone.")
            self._buffer.feed(data)
        return body


def job_request(job: Job, limits: Limits) -> bytes:
    """Packed. Raises plain.Unplain for arguments that are not plain."""
    return pack({"source": job.source, "call": job.call, "args": list(job.args), "value_bytes": limits.value_bytes})


def source_request(job: TestJob, limits: Limits) -> bytes:
    """For the candidate: nothing of the tests."""
    source = job.source.encode("utf-8", "surrogatepass")
    return _LENGTH.pack(_SOURCE.size + len(source)) + _SOURCE.pack(limits.value_bytes) + source


def tests_request(job: TestJob, limits: Limits) -> bytes:
    """For the verifier: nothing of the candidate."""
    return _tests_request(job.tests, limits.value_bytes)


@lru_cache(maxsize=_KEPT)
def _tests_request(tests: tuple[str, ...], value_bytes: int) -> bytes:
    return pack({"tests": [[test, known(test)] for test in tests], "value_bytes": value_bytes})


@lru_cache(maxsize=4096)
def known(test: str) -> dict[str, Any] | None:
    """What needs.read says of a short test that is compiled as it stands, in plain values; None: read it over there.

    A caller that asks this for all completions of a row spares every verifier the reading.
    """
    if len(test) > SHORT_TEST or "\\" in test or syntax.deeper(test):
        return None  # a backslash may be worth a warning, and warnings can't be silenced for one thread
    try:
        reading = needs.read(test)
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning):
        return None
    if reading.rewritten:
        return None
    library = {name: list(place) for name, place in reading.library.items()}
    read = {"names": sorted(reading.names), "library": library, "runs": list(reading.runs), "needs": reading.needs}
    return read | {"closed": reading.closed, "asks": packed_call(reading.only_call)}


def test_results(answers: Iterable[Any], count: int, missing: str) -> tuple[TestResult, ...]:
    """Of `count` tests by what the verifier's channel said; `missing` says why the others gave no answer."""
    results = [TestResult(passed=False, message=missing)] * count
    for answer in answers:
        if type(answer) is dict and type(answer.get("test")) is int and 0 <= answer["test"] < count:
            said, why = str(answer.get("message", "")), str(answer.get("needs", ""))
            results[answer["test"]] = TestResult(answer.get("passed") is True and not why, said, why)
    return tuple(results)
