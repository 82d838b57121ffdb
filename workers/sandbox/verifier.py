"""The process with the tests, which runs them one by one and forwards calls of the candidate's functions to its
process.

It judges one candidate and ends. It never loads the candidate's code, and reads only plain values from the replies. A
test has passed if it ran to its end, called the candidate, and got a reply to every call. The candidate's process can
cause nothing but a value, an exception, or a failure.
"""

import os
import re
import reprlib
import sys
import warnings
from types import CodeType, ModuleType
from typing import Any

from workers.sandbox import exceptions, marshalling, messages, plain_values
from workers.sandbox.guard import GUARD
from workers.sandbox.messages import Channel, Closed, Malformed, pack
from workers.sandbox.requirements import defined_tests
from workers.sandbox.requirements.test_requirements import FILE, Requirements, read

MAX_MESSAGE_LENGTH = 500
_OVERHEAD_BYTES = 65_536
_NAN = re.compile(r"\bnan\b|is_?nan|equal_nan", re.IGNORECASE)
_SHORT_REPR = reprlib.Repr()
_SHORT_REPR.maxstring = _SHORT_REPR.maxother = _SHORT_REPR.maxlong = 80


class TestStopped(BaseException):
    """Signal that ends the running test, whatever exceptions the test catches."""


def verify(channel: Channel, peer: Channel) -> None:
    """Run the tests in `channel`'s request against the candidate behind `peer`. Send the result of each test on
    `channel`, and then messages.LAST. Raises messages.Closed if `channel` is closed."""
    GUARD.add()
    warnings.simplefilter("ignore")  # about the tests' syntax, which nobody would read here
    request = channel.receive()
    peer.set_limit(request["value_bytes"] + _OVERHEAD_BYTES)
    peer.readers = marshalling.READERS
    candidate = CandidateProxy(peer)
    for number, (text, packed) in enumerate(request["tests"]):
        message, needs = judge(text, packed, candidate)
        channel.send({"test": number, "passed": not message, "message": message, "needs": needs})
    channel.send(messages.LAST_MESSAGE)


class CandidateProxy:
    """The candidate's process, as tests see it."""

    def __init__(self, peer: Channel) -> None:
        self._peer = peer
        self._is_ready = False
        self._source = ""
        self._code: CodeType | None = None
        self.gone = ""
        """Why no call can get a reply any longer; "" if calls still can."""
        self.spoiled = ""
        """Why the current test can no longer pass, whatever it catches; "" if it still can."""
        self.needs = ""
        """Why the current test can't be judged in a separate process; "" if it can."""
        self.calls = 0
        self.last_call: tuple[str, tuple[Any, ...], Any] | None = None
        """Last call with a reply, as (name, arguments, value)."""

    def begin_test(self, text: str, code: CodeType) -> None:
        self._source, self._code = text, code
        self.spoiled = self.gone
        self.needs = ""
        self.calls = 0
        self.last_call = None

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the candidate and return its value. Raises the function's exception, and TestStopped if
        the call or its result can't be judged."""
        if self.spoiled:
            raise TestStopped
        nonce = os.urandom(16).hex()
        try:
            packed = pack({"nonce": nonce, "name": name, "args": list(args), "kwargs": kwargs}, marshalling.write)
        except plain_values.NotPlain as problem:
            self.needs = f"“{name}” is called with {problem}, which is not a plain value."
            raise self._spoil(self.needs) from None
        if not self._is_ready:
            self._wait_until_ready(name)
        reply = self._exchange(packed, name)
        if type(reply) is not dict or reply.get("nonce") != nonce:
            raise self._lose(f"When {name} was called, a reply arrived that belongs to no call.")
        return self._handle_reply(reply, name, args, kwargs)

    def _wait_until_ready(self, name: str) -> None:
        # Ready once the module is executed.
        greeting = self._exchange(b"", name)
        if type(greeting) is not dict or type(greeting.get("failed")) is not str:
            raise self._lose("A reply arrived before anything was requested.")
        if greeting["failed"]:
            raise self._lose(f"The code doesn't run. {greeting['failed']}")
        self._is_ready = True

    def _exchange(self, packed: bytes, name: str) -> Any:
        try:
            self._peer.write(packed)
            return self._peer.receive()
        except Closed:
            raise self._lose(f"The candidate's process ended before {name} returned.") from None
        except Malformed as problem:
            raise self._lose(f"{name}: {problem}") from None

    def _handle_reply(self, reply: dict[str, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._code is not None:
            GUARD.arm(self._refuse, self._code)
        if self._peer.not_a_number and not _NAN.search(self._source):
            raise self._spoil(f"{name} returned NaN.")  # no comparison holds for it, and "not greater" would pass
        if "value" in reply:
            self.calls += 1
            value = reply["value"]
            self.last_call = (name, args, value)
            if "after" in reply:
                self._change(reply["after"], args, kwargs)
            return value
        if "raised" in reply:
            self.calls += 1
            raised = exceptions.recreate(reply["raised"])
            if isinstance(raised, StopIteration) and not _names(self._code, "StopIteration"):
                # it would end the test's own map() without an error
                raise self._spoil(f"{name} raised StopIteration.")
            raise raised
        if reply.get("absent"):
            raise self._spoil(f"The code doesn't define {name}.")
        not_plain = str(reply.get("not_plain", "nothing"))[:MAX_MESSAGE_LENGTH]
        raise self._spoil(f"{name} returned {not_plain}, which is not a plain value.")

    def _change(self, after: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            positional, keyword_values = after
            for old, new in zip(args, positional, strict=True):
                marshalling.change(old, new)
            for key, old in kwargs.items():
                marshalling.change(old, keyword_values[key])
        except (TypeError, ValueError, KeyError):
            raise self._lose("An invalid reply arrived.") from None

    def _refuse(self, event: str) -> TestStopped:
        self.needs = f"It could execute what the tested code returns: “{event}”."
        return self._spoil(self.needs)

    def _lose(self, why: str) -> TestStopped:
        self.gone = why
        return self._spoil(why)

    def _spoil(self, why: str) -> TestStopped:
        self.spoiled = why
        return TestStopped(why)


def judge(text: str, packed: list[Any] | None, candidate: CandidateProxy) -> tuple[str, str]:
    """Run a test. Return why it failed, or "" if it passed, and why it can't be judged, or "" if it can. `packed`: the
    test's requirements, if the caller has read them."""
    try:
        requirements = read(text) if packed is None else Requirements.unpacked(text, packed)
        if requirements.problem:
            return requirements.problem, requirements.problem
        code = compile(requirements.source, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        problem = f"The test can't be parsed: {error}."[:MAX_MESSAGE_LENGTH]
        return problem, problem
    return _run(text, code, requirements, candidate), candidate.needs


def _run(text: str, code: CodeType, requirements: Requirements, candidate: CandidateProxy) -> str:
    candidate.begin_test(text, code)
    raised: BaseException | None = None
    try:
        defined_tests.prepare(text)
        names = _globals(requirements, candidate)
        exec(code, names)  # noqa: S102  the dataset's tests, in a process that is locked down
        for name in requirements.runs:
            defined_tests.run(names[name])
    except BaseException as error:
        raised = error
    finally:
        GUARD.disarm()
    if candidate.spoiled:
        return candidate.spoiled[:MAX_MESSAGE_LENGTH]
    if raised is not None:
        return _failure(raised, text, candidate)[:MAX_MESSAGE_LENGTH]
    return "" if candidate.calls else "It ended without calling the tested code."


def _globals(requirements: Requirements, candidate: CandidateProxy) -> dict[str, Any]:
    module = sys.modules["__main__"] = ModuleType("__main__")  # so that `if __name__ == "__main__"` runs
    names = module.__dict__
    names.update((name, marshalling.Stub(name, candidate.call)) for name in requirements.names)
    for name, (library, inside_name) in requirements.library.items():
        __import__(library)
        names[name] = getattr(sys.modules[library], inside_name) if inside_name else sys.modules[library]
    return names


def _failure(error: BaseException, test: str, candidate: CandidateProxy) -> str:
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == FILE:
            line = frame.tb_lineno
        frame = frame.tb_next
    lines = test.splitlines()
    source = lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""
    text = _message_of(error)
    kind = type(error).__name__
    parts = [
        source,
        f"{kind}: {text}" if text else "" if kind == "AssertionError" else kind,
        _describe_call(candidate.last_call),
    ]
    return "; ".join(part for part in parts if part)


def _names(code: CodeType | None, name: str) -> bool:
    return code is not None and (
        name in code.co_names
        or any(_names(constant, name) for constant in code.co_consts if isinstance(constant, CodeType))
    )


def _message_of(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:  # the class may be the test's own, and raise anything
        return ""


def _describe_call(call: tuple[str, tuple[Any, ...], Any] | None) -> str:
    if call is None:
        return ""
    name, args, value = call
    try:
        return f"{name}({', '.join(map(_SHORT_REPR.repr, args))}) returned {_SHORT_REPR.repr(value)}"
    except (ValueError, RecursionError):
        return f"{name} returned a value that can't be shown"
