"""The process of model-written code, which executes a module and calls its functions.

The code can reach everything in this process, so the process contains nothing of value: no tests, no expected values,
no verdict.
"""

import linecache
import sys
import traceback
from collections import Counter, OrderedDict, defaultdict, deque
from types import ModuleType, TracebackType
from typing import Any

from workers.sandbox import exceptions, marshalling, plain_values
from workers.sandbox.messages import Channel, Closed, pack

FILE = "<candidate>"
MAX_TRACEBACK_LENGTH = 20_000
MAX_MESSAGE_LENGTH = 500
_MAX_SHOWN_SOURCE = 200_000
_OK = {"kind": "ok", "value": None, "message": "", "traceback": ""}
_MUTABLE = (list, dict, set, tuple, bytearray, deque, defaultdict, Counter, OrderedDict)


def run_job(channel: Channel) -> None:
    """Execute a module, call one of its functions if requested, and send the result. Raises messages.Closed if the
    channel is closed."""
    request = channel.receive()
    source, call = request["source"], request["call"]
    value = None
    try:
        module = _execute(source, "__main__" if call is None else "job")
        if call is not None:
            value = _lookup(module, call)(*request["args"])
    except BaseException as error:
        result = _failure(error, source)
    else:
        result = {**_OK, "value": value}
    _flush()
    channel.write(_pack_limited(result, request["value_bytes"]))


def serve_candidate(channel: Channel, peer: Channel) -> None:
    """Execute a module, report the result on `channel` and `peer`, and handle the verifier's calls on `peer` until
    `peer` is closed. Raises messages.Closed if `channel` is closed."""
    request = channel.receive()
    source = request["source"]
    try:
        module = _execute(source, "candidate")
    except BaseException as error:
        failure = _failure(error, source)
        _flush()
        channel.send(failure)
        peer.send({"failed": failure["message"]})
        return
    channel.send(_OK)
    peer.send({"failed": ""})
    peer.readers = {**marshalling.READERS, "name": lambda name: _lookup(module, name)}
    try:
        while True:
            peer.write(_handle_call(module, peer.receive(), request["value_bytes"]))
    except Closed:
        _flush()


def _execute(source: str, name: str) -> ModuleType:
    code = compile(source, FILE, "exec", dont_inherit=True)
    module = sys.modules[name] = ModuleType(name)
    exec(code, module.__dict__)  # noqa: S102  # the purpose of this process
    return module


def _lookup(module: ModuleType, name: str) -> Any:
    try:
        return module.__dict__[name]
    except KeyError:
        raise NameError(f"name {name!r} is not defined") from None


def _pack_limited(result: dict[str, Any], limit: int) -> bytes:
    try:
        packed = pack(result)
    except BaseException as error:
        return pack(_error_message(f"It returned {_why_not_plain(error)}, which is not a plain value."))
    if len(packed) > limit + 2 * MAX_TRACEBACK_LENGTH:
        return pack(_error_message(f"Its result has {len(packed):,} bytes; {limit:,} are allowed."))
    return packed


def _error_message(message: str) -> dict[str, Any]:
    return {**_OK, "kind": "error", "message": message[:MAX_MESSAGE_LENGTH]}


def _why_not_plain(error: BaseException) -> str:
    return str(error) if isinstance(error, plain_values.NotPlain) else exceptions.text(error)


def _handle_call(module: ModuleType, call: Any, limit: int) -> bytes:
    """Call a function and return the packed reply: {"nonce"} with "value" (and "after", the arguments, if the call
    changed them in place), "raised", "not_plain" (why) or "absent"."""
    reply: dict[str, Any] = {"nonce": call["nonce"]}
    name, args, kwargs = call["name"], call["args"], call["kwargs"]
    function = module.__dict__.get(name, reply)
    if function is reply:
        return pack(reply | {"absent": True})
    snapshot = _mutable(args, kwargs)
    try:
        reply["value"] = function(*args, **kwargs)
        if snapshot and _mutable(args, kwargs) != snapshot:
            reply["after"] = [args, kwargs]
    except BaseException as error:
        return pack({"nonce": call["nonce"], "raised": exceptions.as_plain(error)})
    try:
        packed = pack(reply, marshalling.write)
    except BaseException as error:
        return pack({"nonce": call["nonce"], "not_plain": _why_not_plain(error)[:MAX_MESSAGE_LENGTH]})
    if len(packed) > limit:
        return pack({"nonce": call["nonce"], "not_plain": f"{len(packed):,} bytes, more than {limit:,}"})
    return packed


def _mutable(args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Return a snapshot of the arguments that a call may change in place, without consuming iterators."""
    snapshot = []
    for value in (*args, *kwargs.values()):
        if type(value) in _MUTABLE:
            try:
                snapshot.append(plain_values.encode(value, marshalling.write_untouched))
            except plain_values.NotPlain:
                snapshot.append(None)
    return snapshot


def _failure(error: BaseException, source: str) -> dict[str, Any]:
    if isinstance(error, SystemExit):
        message = f"It ended early by calling exit({exceptions.text(error)})."
    else:
        name, text = type(error).__name__[:80], exceptions.text(error)
        message = f"{name}: {text}" if text else name
    kind = "memory" if isinstance(error, MemoryError) else "error"
    return {
        "kind": kind,
        "value": None,
        "message": message[:MAX_MESSAGE_LENGTH],
        "traceback": _traceback(error, source),
    }


def _traceback(error: BaseException, source: str) -> str:
    try:
        if len(source) < _MAX_SHOWN_SOURCE:
            linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
        lines = traceback.format_exception(type(error), error, _skip_own_frames(error.__traceback__), limit=-20)
        return "".join(lines)[-MAX_TRACEBACK_LENGTH:]
    except BaseException:
        return ""


def _skip_own_frames(frame_entry: TracebackType | None) -> TracebackType | None:
    while frame_entry is not None and frame_entry.tb_frame.f_code.co_filename == __file__:
        frame_entry = frame_entry.tb_next
    return frame_entry


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BaseException:  # noqa: S110  # the stream may be closed or replaced
            pass
