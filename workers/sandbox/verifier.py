"""The process with the tests: runs them one by one, and passes each call of the candidate's functions to its process.

It judges one candidate and ends. It never loads the candidate's code, and reads only plain values from its answers. A
test has passed if it ran to its end, called the candidate, and got an answer to every call: the candidate's process can
cause no more than a value, an exception, or a failure.
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

MESSAGE = 500
_SLACK = 65_536
"""Bytes of a reply in addition to its value."""
_NAN = re.compile(r"\bnan\b|is_?nan|equal_nan", re.IGNORECASE)
"""A pattern of tests that expect NaN."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class TestStopped(BaseException):
    """Signal that ends the running test, whatever exceptions the test catches."""


def verify(channel: Channel, peer: Channel) -> None:
    """Run the tests in `channel`'s request against the candidate behind `peer`. Raises messages.Closed. Sends the
    result of each test on `channel`, then messages.LAST."""
    GUARD.add()
    warnings.simplefilter("ignore")  # about the tests' syntax, which nobody would read here
    request = channel.receive()
    peer.bound(request["value_bytes"] + _SLACK)
    peer.readers = marshalling.READERS
    candidate = CandidateProxy(peer)
    for number, (text, packed) in enumerate(request["tests"]):
        message, needs = judged(text, packed, candidate)
        channel.send({"test": number, "passed": not message, "message": message, "needs": needs})
    channel.send(messages.LAST)


class CandidateProxy:
    """The candidate's process, as tests see it."""

    def __init__(self, peer: Channel) -> None:
        self._peer = peer
        self._ready = False
        self._text = ""
        self._code: CodeType | None = None
        """The code of the present test."""
        self.gone = ""
        """Why no call can be answered any longer."""
        self.spoiled = ""
        """Why the present test can no longer pass, whatever it catches."""
        self.needs = ""
        """Why the present test can't be judged in a separate process."""
        self.calls = 0
        """The number of answered calls in the present test."""
        self.last: tuple[str, tuple[Any, ...], Any] | None = None
        """The last answered call: name, arguments and value."""

    def begin_test(self, text: str, code: CodeType) -> None:
        self._text, self._code = text, code
        self.spoiled = self.gone
        self.needs = ""
        self.calls = 0
        self.last = None

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of the candidate. Raises the function's exception, and TestStopped."""
        if self.spoiled:
            raise TestStopped
        nonce = os.urandom(16).hex()
        try:
            packed = pack({"nonce": nonce, "name": name, "args": list(args), "kwargs": kwargs}, marshalling.write)
        except plain_values.NotPlain as problem:
            self.needs = f"“{name}” is called with {problem}, no plain value."
            raise self._spoil(self.needs) from None
        if not self._ready:
            self._wait_until_ready(name)
        reply = self._exchange(packed, name)
        if type(reply) is not dict or reply.get("nonce") != nonce:
            raise self._lose(f"An answer came that belongs to no call, when {name} was called.")
        return self._take(reply, name, args, kwargs)

    def _wait_until_ready(self, name: str) -> None:
        # Ready once the module is executed.
        greeting = self._exchange(b"", name)
        if type(greeting) is not dict or type(greeting.get("failed")) is not str:
            raise self._lose("An answer came before anything was asked.")
        if greeting["failed"]:
            raise self._lose(f"The code doesn't run. {greeting['failed']}")
        self._ready = True

    def _exchange(self, packed: bytes, name: str) -> Any:
        try:
            self._peer.write(packed)
            return self._peer.receive()
        except Closed:
            raise self._lose(f"The candidate's process ended before {name} gave an answer.") from None
        except Malformed as problem:
            raise self._lose(f"{name}: {problem}") from None

    def _take(self, reply: dict[str, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._code is not None:
            GUARD.arm(self._refuse, self._code)
        if self._peer.not_a_number and not _NAN.search(self._text):
            raise self._spoil(f"{name} gave NaN.")  # no comparison holds for it, and "not greater" would pass
        if "value" in reply:
            self.calls += 1
            value = reply["value"]
            self.last = (name, args, value)
            if "after" in reply:
                self._change(reply["after"], args, kwargs)
            return value
        if "raised" in reply:
            self.calls += 1
            raised = exceptions.recreated(reply["raised"])
            if isinstance(raised, StopIteration) and not _names(self._code, "StopIteration"):
                # it would end the test's own map() without an error
                raise self._spoil(f"{name} raised StopIteration.")
            raise raised
        if reply.get("absent"):
            raise self._spoil(f"The code defines no {name}.")
        raise self._spoil(f"{name} gave {str(reply.get('not_plain', 'nothing'))[:MESSAGE]}: no plain value.")

    def _change(self, after: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            positional, named = after
            for old, new in zip(args, positional, strict=True):
                marshalling.change(old, new)
            for key, old in kwargs.items():
                marshalling.change(old, named[key])
        except (TypeError, ValueError, KeyError):
            raise self._lose("An invalid answer came.") from None

    def _refuse(self, event: str) -> TestStopped:
        self.needs = f"It could run what the tested code gives: “{event}”."
        return self._spoil(self.needs)

    def _lose(self, why: str) -> TestStopped:
        self.gone = why
        return self._spoil(why)

    def _spoil(self, why: str) -> TestStopped:
        self.spoiled = why
        return TestStopped(why)


def judged(text: str, packed: list[Any] | None, candidate: CandidateProxy) -> tuple[str, str]:
    """Run a test; return why it failed ("": it passed), and why it can't be judged, if that is the reason. `packed`:
    the test's requirements, if the caller has read them."""
    try:
        requirements = read(text) if packed is None else Requirements.unpacked(text, packed)
        if requirements.problem:
            return requirements.problem, requirements.problem
        code = compile(requirements.source, FILE, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        problem = f"The test doesn't parse: {error}."[:MESSAGE]
        return problem, problem
    return _run(text, code, requirements, candidate), candidate.needs


def _run(text: str, code: CodeType, requirements: Requirements, candidate: CandidateProxy) -> str:
    candidate.begin_test(text, code)
    raised: BaseException | None = None
    try:
        defined_tests.prepare(text)
        names = _globals(requirements, candidate)
        exec(code, names)  # noqa: S102  the data set's tests, in a process that is locked in
        for name in requirements.runs:
            defined_tests.run(names[name])
    except BaseException as error:
        raised = error
    finally:
        GUARD.disarm()
    if candidate.spoiled:
        return candidate.spoiled[:MESSAGE]
    if raised is not None:
        return _failure(raised, text, candidate)[:MESSAGE]
    return "" if candidate.calls else "It ended without a call of the candidate's."


def _globals(requirements: Requirements, candidate: CandidateProxy) -> dict[str, Any]:
    module = sys.modules["__main__"] = ModuleType("__main__")  # so that `if __name__ == "__main__"` runs
    names = module.__dict__
    names.update((name, marshalling.Stub(name, candidate.call)) for name in requirements.names)
    for name, (library, inside) in requirements.library.items():
        __import__(library)
        names[name] = getattr(sys.modules[library], inside) if inside else sys.modules[library]
    return names


def _failure(error: BaseException, test: str, candidate: CandidateProxy) -> str:
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == FILE:
            line = frame.tb_lineno
        frame = frame.tb_next
    lines = test.splitlines()
    source = lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""
    text = _text(error)
    kind = type(error).__name__
    parts = [source, f"{kind}: {text}" if text else "" if kind == "AssertionError" else kind, _shown(candidate.last)]
    return "; ".join(part for part in parts if part)


def _names(code: CodeType | None, name: str) -> bool:
    """Return whether a test's code contains this name."""
    return code is not None and (
        name in code.co_names or any(_names(inner, name) for inner in code.co_consts if isinstance(inner, CodeType))
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:  # the class may be the test's own, and raise anything
        return ""


def _shown(call: tuple[str, tuple[Any, ...], Any] | None) -> str:
    if call is None:
        return ""
    name, args, value = call
    try:
        return f"{name}({', '.join(map(_SHORT.repr, args))}) gave {_SHORT.repr(value)}"
    except (ValueError, RecursionError):
        return f"{name} gave a value that can't be shown"
