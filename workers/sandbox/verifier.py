"""The process that holds the tests: runs them one by one; each call of the candidate's goes over to its process.

It never loads candidate code, and of what comes back it makes plain values only. A test has passed when it ran to its
end, called the candidate, and every call had its answer: nothing that the candidate's process says or leaves out can be
more than a value, an exception, or a fail.
"""

from __future__ import annotations

import ast
import os
import re
import reprlib
import resource
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType
from typing import Any

from workers.sandbox import ahead, likenesses, messages, plain, raising, running
from workers.sandbox.guard import GUARD
from workers.sandbox.messages import Channel, Closed, Malformed, pack
from workers.sandbox.needs import FILE, read

MESSAGE = 500
_SLACK = 65_536
"""Bytes of a reply around its value."""
_LEFT_BEHIND = 16 << 20
"""Bytes of memory that one candidate's values may take here for another's to be judged after it."""
_NAN = re.compile(r"\bnan\b|is_?nan|equal_nan", re.IGNORECASE)
"""How a test tells that it knows of NaN."""
_MOST_AHEAD = 256
_QUICK = 1024
"""Bytes of an answer that is read and compared at once."""
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80


class Stopped(BaseException):
    """This test is over, whatever it catches."""


def verify(channel: Channel, *peers: Channel, guarded: bool = True) -> None:
    """Run the tests that `channel` names, those of one candidate after another's: a result of each on `channel`, and at
    the end of each candidate's {"done": its number, "spent": whether there should be no next one here, "memory":
    whether that is because it ran short}. Raises messages.Closed.

    `guarded`: keep values from becoming code in this process, for as long as it lives (see guard.py).
    """
    if guarded:
        GUARD.add()
    warnings.simplefilter("ignore")  # of the tests' own syntax, which nobody reads here
    at_first = _peak()
    asked, most, tests = b"", 0, []
    for number, peer in enumerate(peers):
        body = channel.receive_body()
        if body != asked:  # else it is another completion of the same group
            request = messages.unpack(body)
            asked, most, tests = body, request["value_bytes"], [_Test(*test) for test in request["tests"]]
        candidate = _judge(channel, peer, tests, most)
        spent = candidate.short or _peak() > at_first + _LEFT_BEHIND
        channel.write(candidate.untold + pack({"done": number, "spent": spent, "memory": candidate.short}))
        os.close(peer.fd)


def _judge(channel: Channel, peer: Channel, tests: list[_Test], most: int) -> _Candidate:
    """One candidate, whose values may have so many bytes. The last results may be `untold` yet."""
    peer.bound(most + _SLACK)
    peer.more = likenesses.READ
    candidate = _Candidate(channel, peer, most)
    for number, test in enumerate(tests):
        if not candidate.was_asked:
            candidate.tell()
            if test.asks is not None:
                candidate.ask(each.asks for each in tests[number : number + _MOST_AHEAD])
        message, needs = test.run(candidate)
        candidate.untold += _result(number, message, needs) if message else _passed(number)
    return candidate


def _result(number: int, message: str, needs: str) -> bytes:
    return pack({"test": number, "passed": not message, "message": message, "needs": needs})


@lru_cache(maxsize=64)
def _passed(number: int) -> bytes:
    return _result(number, "", "")


def _peak() -> int:
    """Bytes of memory that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class _Candidate:
    """The other process, as tests see it."""

    def __init__(self, channel: Channel, peer: Channel, most: int) -> None:
        """`channel`: where results are told."""
        self._channel = channel
        self._peer = peer
        self.untold = b""
        """Results."""
        self._most = most
        self._ready = False
        self.gone = ""
        """Why no call can be answered any more."""
        self.spoiled = ""
        """Why the present test can't pass any more, whatever it catches."""
        self.needs = ""
        """What the present test asked that can't be given."""
        self.calls = 0
        """Answered, in the present test."""
        self.short = False
        """Whether memory ran short, in any test."""
        self._text = ""
        self._code: CodeType | None = None
        """Of the present test."""
        self.last: tuple[str, tuple[Any, ...], Any] | None = None
        """The last answered call: its name, its arguments and what it gave."""
        self._nonces: list[str] = []
        """Of the calls that were asked ahead for the tests to come, the next one last."""
        self._nonce = ""
        """Of the present test's, until it is called."""

    @property
    def was_asked(self) -> bool:
        """Whether the next test's call has been."""
        return bool(self._nonces)

    def ask(self, calls: Iterable[bytes | None]) -> None:
        """What the next tests will call, in their order, as far as it goes in one go. `calls`: packed."""
        if self.gone:
            return
        nonce = os.urandom(15).hex()
        sent, nonces = b"", []
        for number, packed in enumerate(calls):
            if packed is None or len(sent) + len(packed) > 2 * ahead.MOST_BYTES:
                break
            nonces.append(f"{nonce}{number:02x}")
            sent += messages.with_nonce(packed, nonces[-1])
        try:
            self._peer.write(sent)
        except Closed:
            return  # which is said of the first call
        self._nonces = nonces[::-1]

    def tell(self) -> None:
        """The results so far. Raises messages.Closed."""
        if self.untold:
            self._channel.write(self.untold)
            self.untold = b""

    def begin_test(self, text: str, code: CodeType) -> None:
        self._code = code
        self.spoiled = self.gone
        self.needs = ""
        self.last = None
        self.calls = 0
        self._text = text
        self._nonce = self._nonces.pop() if self._nonces else ""

    def end_test(self) -> None:
        """An answer that this one has not taken would be the next one's."""
        if self._nonce and not self.gone:
            self._lose("A test ended before its call.")

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the function gives. Raises what it raises, and Stopped."""
        if self.spoiled:
            raise Stopped
        packed, nonce = b"", self._nonce
        self._nonce = ""
        if not nonce:
            nonce = os.urandom(16).hex()
            try:
                packed = pack({"nonce": nonce, "name": name, "args": list(args), "kwargs": kwargs}, likenesses.more)
            except plain.Unplain as problem:
                self.needs = f"“{name}” is called with {problem}, no plain value."
                raise self._spoil(self.needs) from None
        if not self._ready:
            self._wait(name)
        reply = self._asked(packed, name)
        if type(reply) is not dict or reply.get("nonce") != nonce:
            raise self._lose(f"An answer came that belongs to no call, when {name} was called.")
        return self._taken(reply, name, args, kwargs)

    def _wait(self, name: str) -> None:
        """Until the module is executed."""
        greeting = self._asked(b"", name)
        if type(greeting) is not dict or type(greeting.get("failed")) is not str:
            raise self._lose("An answer came before anything was asked.")
        if greeting["failed"]:
            raise self._lose(f"The code doesn't run. {greeting['failed']}")
        self._ready = True

    def _asked(self, packed: bytes, name: str) -> Any:
        try:
            if packed:
                self._peer.write(packed)
            body = self._peer.receive_body()
            if len(body) > _QUICK:
                self.tell()  # what it holds may keep this process busy for as long as it is let live
            return self._peer.read(body)
        except Closed:
            raise self._lose(f"The candidate's process ended before {name} gave an answer.") from None
        except Malformed as problem:
            self.short = self.short or isinstance(problem.__context__, MemoryError)
            raise self._lose(f"{name}: {problem}") from None
        except MemoryError:
            self.short = True
            raise

    def _taken(self, reply: dict[str, Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._code is not None:
            GUARD.arm(self._refuse, self._code)
        if self._peer.not_a_number and not _NAN.search(self._text):
            raise self._spoil(f"{name} gave NaN.")  # no comparison holds for it, nor does what says "not greater"
        if "value" in reply:
            self.calls += 1
            value = reply["value"]
            self.last = (name, args, value)
            if "after" in reply:
                self._change(reply["after"], args, kwargs)
            return value
        if "raised" in reply:
            self.calls += 1
            raised = raising.made(reply["raised"])
            if isinstance(raised, StopIteration) and not _knows(self._code, "StopIteration"):
                # it would end the test's own map() as if all was well
                raise self._spoil(f"{name} raised StopIteration.")
            raise raised
        if reply.get("absent"):
            raise self._spoil(f"The code defines no {name}.")
        raise self._spoil(f"{name} gave {str(reply.get('unplain', 'nothing'))[:MESSAGE]}: no plain value.")

    def _change(self, after: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Bring what the call did to its arguments over here."""
        try:
            positional, named = after
            for old, new in zip(args, positional, strict=True):
                likenesses.change(old, new)
            for key, old in kwargs.items():
                likenesses.change(old, named[key])
        except (TypeError, ValueError, KeyError):
            raise self._lose("An answer came that is none.") from None

    def _refuse(self, event: str) -> Stopped:
        self.needs = f"It could run what the tested code gives: “{event}”."
        return self._spoil(self.needs)

    def _lose(self, why: str) -> Stopped:
        self.gone = why
        return self._spoil(why)

    def _spoil(self, why: str) -> Stopped:
        self.spoiled = why
        return Stopped(why)


class _Test:
    def __init__(self, text: str, known: dict[str, Any] | None) -> None:
        """`known`: what the caller has read of it (messages.known)."""
        self._text = text
        self._code: CodeType | None = None
        self._free: Iterable[str] = ()
        self._library: Mapping[str, Sequence[str]] = {}
        self._runs: Sequence[str] = ()
        self._needs = ""
        asks: bytes | None = None
        self.asks: bytes | None = None
        """Its only call, packed, if it can be asked ahead."""
        try:
            if known is None:
                reading = read(text)
                self._free, self._library, self._runs = reading.names, reading.library, reading.runs
                self._needs = reading.needs
                asks = messages.packed_call(reading.only_call)
                to_compile: str | ast.Module = reading.tree
            else:
                self._free, self._library, self._runs = known["names"], known["library"], known["runs"]
                self._needs, to_compile, asks = known["needs"], text, known["asks"]
            if not self._needs:
                self._code = compile(to_compile, FILE, "exec", dont_inherit=True)
                self.asks = asks
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            self._needs = f"The test doesn't parse: {error}."[:MESSAGE]

    def run(self, candidate: _Candidate) -> tuple[str, str]:
        """Why it failed, "" if it passed; and what it asked that can't be given, if that is why."""
        if self._code is None:
            return self._needs, self._needs
        return self._run(candidate, self._code), candidate.needs

    def _run(self, candidate: _Candidate, code: CodeType) -> str:
        candidate.begin_test(self._text, code)
        raised: BaseException | None = None
        try:
            running.before(self._text)
            names = self._names(candidate)
            exec(code, names)  # noqa: S102  the data set's tests, in a process that is locked in
            for name in self._runs:
                running.run(names[name])
        except BaseException as error:
            raised = error
            candidate.short = candidate.short or isinstance(error, MemoryError)
        finally:
            GUARD.disarm()
        try:
            if candidate.spoiled:
                return candidate.spoiled[:MESSAGE]
            if raised is not None:
                return self._told(raised, candidate)[:MESSAGE]
            return "" if candidate.calls else "It ended without a call of the candidate's."
        finally:
            candidate.end_test()
            raised = None  # it holds this frame, which holds what came

    def _names(self, candidate: _Candidate) -> dict[str, Any]:
        """The globals of the test."""
        module = sys.modules["__main__"] = ModuleType("__main__")  # so that what a test guards by that name is run
        names = module.__dict__
        names.update((name, likenesses.Stub(name, candidate.call)) for name in self._free)
        for name, (library, inside) in self._library.items():
            __import__(library)
            names[name] = getattr(sys.modules[library], inside) if inside else sys.modules[library]
        return names

    def _told(self, error: BaseException, candidate: _Candidate) -> str:
        line, shown = 0, error.__traceback__
        while shown is not None:
            if shown.tb_frame.f_code.co_filename == FILE:
                line = shown.tb_lineno
            shown = shown.tb_next
        lines = self._text.splitlines()
        said = lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""
        text = _text(error)
        kind = type(error).__name__
        parts = [said, f"{kind}: {text}" if text else "" if kind == "AssertionError" else kind, _last(candidate.last)]
        return "; ".join(part for part in parts if part)


def _knows(code: CodeType | None, name: str) -> bool:
    """Whether a test names it, in its code."""
    return code is not None and (
        name in code.co_names or any(_knows(one, name) for one in code.co_consts if isinstance(one, CodeType))
    )


def _text(error: BaseException) -> str:
    try:
        return str(error)[:200]
    except Exception:
        return ""


def _last(call: tuple[str, tuple[Any, ...], Any] | None) -> str:
    if call is None:
        return ""
    name, args, value = call
    try:
        return f"{name}({', '.join(map(_SHORT.repr, args))}) gave {_SHORT.repr(value)}"
    except (ValueError, RecursionError):
        return f"{name} gave a value that can't be shown"
