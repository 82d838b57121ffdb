"""The process that holds what a model wrote: executes its module, and calls functions of it.

Nothing here is safe from that code, and nothing that it could gain is here: no test, no expected value, no verdict.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections import Counter, OrderedDict, defaultdict, deque
from types import ModuleType, TracebackType
from typing import Any

from workers.sandbox import likenesses, plain, raising
from workers.sandbox.messages import Channel, Closed, pack, pack_atom

FILE = "<candidate>"
"""What the code's file is called in tracebacks."""
TRACEBACK = 20_000
MESSAGE = 500
_SHOWN_SOURCE = 200_000
_served: list[ModuleType] = []
"""The module whose functions the verifier calls."""
_NAMES = {**likenesses.READ, "name": lambda name: _named(_served[0], name)}
"""For plain.decode: here a name is a function of the candidate's own."""
_FINE = pack({"kind": "ok", "value": None, "message": "", "traceback": ""})
_READY = pack({"failed": ""})
_REHEARSED = "def f(x):\n    y = x + 1\n    return y\n"
_REHEARSED_CALL: dict[str, Any] = {"nonce": "0" * 32, "name": "f", "args": [1], "kwargs": {}}
_LARGE = 1 << 60
_CHANGEABLE = (list, dict, set, tuple, bytearray, deque, defaultdict, Counter, OrderedDict)


def run_job(channel: Channel) -> None:
    """Execute a module, and if asked call a function of it; one answer on `channel`. Raises messages.Closed."""
    request = channel.receive()
    source, call = request["source"], request["call"]
    value = None
    try:
        module = _execute(source, "__main__" if call is None else "job")
        if call is not None:
            value = _named(module, call)(*request["args"])
    except BaseException as error:
        answer = _failure(error, source)
    else:
        answer = {"kind": "ok", "value": value, "message": "", "traceback": ""}
    _flush()
    channel.write(_packed(answer, request["value_bytes"]))


def serve_candidate(channel: Channel, peer: Channel) -> None:
    """Execute a module, say on `channel` and `peer` what came of it, then answer the verifier's calls on `peer` until
    that is closed. Raises messages.Closed."""
    source, most = channel.receive_source()
    try:
        module = _execute(source, "candidate")
    except BaseException as error:
        failure = _failure(error, source)
        _flush()
        channel.send(failure)
        peer.send({"failed": failure["message"]})
        return
    channel.write(_FINE)
    peer.write(_READY)
    _served[:] = [module]
    peer.more = _NAMES
    try:
        while True:
            peer.write(_answered(module, peer.receive_call(), most))
    except Closed:
        _flush()


def serve_ready(channel: Channel, peer: Channel) -> None:
    """As serve_candidate, in a process that lies ready: it has its pages copied before anybody waits for it."""
    module = _execute(_REHEARSED, "candidate")
    _answered(module, _REHEARSED_CALL, 1000)
    serve_candidate(channel, peer)


def _execute(source: str, name: str) -> ModuleType:
    """Raises whatever the source does."""
    code = compile(source, FILE, "exec", dont_inherit=True)
    module = sys.modules[name] = ModuleType(name)
    exec(code, module.__dict__)  # noqa: S102  what this process is there for
    return module


def _named(module: ModuleType, name: str) -> Any:
    try:
        return module.__dict__[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None


def _packed(answer: dict[str, Any], most: int) -> bytes:
    """Of run_job."""
    try:
        packed = pack(answer)
    except BaseException as error:
        return pack(
            _unsent(f"It gave {error if isinstance(error, plain.Unplain) else raising.text(error)}, no plain value.")
        )
    if len(packed) > most + 2 * TRACEBACK:
        return pack(_unsent(f"What it gave has {len(packed):,} bytes; {most:,} are allowed."))
    return packed


def _unsent(message: str) -> dict[str, Any]:
    return {"kind": "error", "value": None, "message": message[:MESSAGE], "traceback": ""}


def _answered(module: ModuleType, call: Any, most: int) -> bytes:
    """The reply to one call: {"nonce"} with "value" (and "after": the arguments, where they were changed in place),
    "raised", "unplain" (why) or "absent" (the name)."""
    reply: dict[str, Any] = {"nonce": call["nonce"]}
    name, args, kwargs = call["name"], call["args"], call["kwargs"]
    function = module.__dict__.get(name, reply)
    if function is reply:
        return pack(reply | {"absent": True})
    before = _changeable(args, kwargs)
    try:
        reply["value"] = function(*args, **kwargs)
        if before and _changeable(args, kwargs) != before:
            reply["after"] = [args, kwargs]
    except BaseException as error:
        return pack(reply | {"raised": raising.written(error)})
    try:
        kind = type(reply["value"])
        if len(reply) == 2 and (kind is bool or (kind is int and -_LARGE < reply["value"] < _LARGE)):
            return pack_atom(call["nonce"], reply["value"])
        packed = pack(reply, likenesses.more)
    except BaseException as error:
        why = str(error) if isinstance(error, plain.Unplain) else raising.text(error)
        return pack({"nonce": call["nonce"], "unplain": why[:MESSAGE]})
    if len(packed) > most:
        return pack({"nonce": call["nonce"], "unplain": f"{len(packed):,} bytes, more than {most:,}"})
    return packed


def _changeable(args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """What of the arguments a call may change in place, as it stands now; nothing is drained for that."""
    found = []
    for one in (*args, *kwargs.values()):
        if type(one) in _CHANGEABLE:
            try:
                found.append(plain.encode(one, likenesses.still))
            except plain.Unplain:
                found.append(None)
    return found


def _failure(error: BaseException, source: str) -> dict[str, Any]:
    if isinstance(error, SystemExit):
        message = f"It ended early, by exit({raising.text(error)})."
    else:
        name, text = type(error).__name__[:80], raising.text(error)
        message = f"{name}: {text}" if text else name
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return {"kind": kind, "value": None, "message": message[:MESSAGE], "traceback": _traceback(error, source)}


def _traceback(error: BaseException, source: str) -> str:
    try:
        if len(source) < _SHOWN_SOURCE:
            linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
        told = traceback.format_exception(type(error), error, _inside(error.__traceback__), limit=-20)
        return "".join(told)[-TRACEBACK:]
    except BaseException:
        return ""


def _inside(shown: TracebackType | None) -> TracebackType | None:
    """Without the frames of this module."""
    while shown is not None and shown.tb_frame.f_code.co_filename == __file__:
        shown = shown.tb_next
    return shown


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: S110  it may be closed, or something else by now
            pass
