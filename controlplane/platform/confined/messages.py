"""Messages between this process and a child: a length and JSON. Nothing is unpickled.

A function's annotations say which types its arguments and its result have: dataclasses, enumerations, tuples and bytes
arrive as such, and whatever is annotated as Any as plain JSON.
"""

import inspect
import json
import select
import socket
import struct
import time
import typing
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import msgspec

MAX_RESULT_BYTES = 16 * 2**20
MAX_ANSWER_BYTES = MAX_RESULT_BYTES + 64
"""Maximum size of a child's message, which may exceed its result by a few characters."""
MAX_VALUES = 300_000
"""Maximum number of values in a JSON text. The parser works on the whole text at once, while every other thread waits:
about 30 ms for as many."""
_LENGTH = struct.Struct("!Q")
_is_parent_waiting: Callable[[], bool] | None = None


def name_of(target: Any) -> str:
    return f"{target.__module__}:{target.__qualname__}"


@cache
def import_name(name: str) -> Any:
    """Import the function or class with this name."""
    module, _, path = name.partition(":")
    target: Any = import_module(module)
    for part in path.split("."):
        target = getattr(target, part)
    return target


def encode(value: Any) -> bytes:
    """Encode a value as JSON."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def arguments_of(function: Callable[..., Any], plain_values: Sequence[Any]) -> list[Any]:
    types, _ = _types(function)
    return [msgspec.convert(value, type_) for value, type_ in zip(plain_values, types, strict=True)]


def result_of(function: Callable[..., Any], plain_value: Any) -> Any:
    return msgspec.convert(plain_value, _types(function)[1])


@cache
def _types(function: Callable[..., Any]) -> tuple[list[Any], Any]:
    hints = typing.get_type_hints(function)
    return [hints[name] for name in inspect.signature(function).parameters], hints["return"]


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(_LENGTH.pack(len(message)) + message)


class MessageTooLong(Exception):
    """Signal that a message is longer than its receiver accepts; nothing of it has been read."""


def receive(connection: socket.socket, *, limit: int | None = None, until: float | None = None) -> bytes:
    """Read one message of at most `limit` bytes before the deadline `until` on the monotonic clock.

    Raises EOFError at the end of the connection, MessageTooLong, and TimeoutError.
    """
    (length,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size, until))
    if limit is not None and length > limit:
        raise MessageTooLong
    return _exactly(connection, length, until)


def _exactly(connection: socket.socket, size: int, until: float | None) -> bytes:
    buffer = bytearray(size)
    view, filled = memoryview(buffer), 0
    while filled < size:
        if until is not None:
            connection.settimeout(max(0.001, until - time.monotonic()))
        count = connection.recv_into(view[filled:])
        if not count:
            raise EOFError
        filled += count
    return bytes(buffer)


def mark_as_child(connection: socket.socket) -> None:
    """Note that this process is a child. While it works, the other side sends nothing except to cancel."""
    global _is_parent_waiting
    _is_parent_waiting = lambda: not select.select([connection], [], [], 0)[0]  # noqa: E731


def is_child() -> bool:
    return _is_parent_waiting is not None


def is_wanted() -> bool:
    return _is_parent_waiting is None or _is_parent_waiting()


def has_too_many_values(text: bytes, limit: int = MAX_VALUES) -> bool:
    """Count the values of a text, JSON or not, without parsing it, and return whether there are more than `limit`."""
    if _marks(text) <= limit:
        return False
    text = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if text.count(b'"') > 4 * limit:  # two for a name, and two for its value
        return True
    return _marks(b"".join(text.split(b'"')[::2])) > limit  # commas and brackets in strings don't count


def _marks(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")
