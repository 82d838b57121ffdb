"""Passing of plain values between processes, as JSON with tags. Nothing is unpickled and nothing is executed.

JSON's null, booleans, numbers, strings and arrays represent None, bool, int, float, str and list; a value of another
type is an object with one member, named by the tag. Decoding yields exactly these types. An instance of a subclass is
passed as its plain value, which is read with the plain type's own methods, so that no override is called.
"""

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

MAX_DEPTH = 100
_MAX_JSON_DEPTH = 2 * MAX_DEPTH + 20
"""Maximum nesting depth of the JSON, which has each container with its tag, and the message around them."""
MAX_VALUES = 500_000
"""Maximum number of values in a message, because shared objects are written each time and may grow without bound."""
_KEPT_TYPES = frozenset((bytearray, Counter, OrderedDict, defaultdict))
"""Types that are written as plain values only if there is no encoder for them."""
_MAX_DECIMAL = 10**4000
"""Integer from which on hexadecimal is used, because Python refuses more than 4,300 decimal digits."""
_ATOMS = frozenset((type(None), bool, float, str))
_INT = frozenset((int,))
_NUMBERS = _ATOMS | _INT


class NotPlain(Exception):
    """Error for a value that is not plain. The message describes the value."""


WriteOther = Callable[["Encoder", Any, int], Any]
"""Function of an Encoder for other types: (encoder, value, depth) -> JSON. It raises NotPlain."""


def encode(value: object, write_other: WriteOther | None = None) -> Any:
    """Encode a value for json.dumps. Raises NotPlain if it can't be encoded."""
    return value if type(value) in _ATOMS else Encoder(write_other).encode(value, 0)


def decode(value: Any, readers: Mapping[str, Callable[[Any], Any]] | None = None, depth: int = 0) -> Any:
    """Decode the result of json.loads, and return the value. `readers`: readers for additional tags, by tag. Raises
    NotPlain, ValueError, TypeError or RecursionError if it is not the encoding of a value."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    depth += 1
    if depth > _MAX_JSON_DEPTH:
        raise NotPlain(f"a value nested deeper than {MAX_DEPTH}")
    if kind is list:
        return [item if type(item) in _NUMBERS else decode(item, readers, depth) for item in value]
    ((tag, content),) = value.items()
    match tag:
        case "m":
            pairs = dict.items(content)
            return {key: item if type(item) in _NUMBERS else decode(item, readers, depth) for key, item in pairs}
        case "d":
            return {decode(key, readers, depth): decode(item, readers, depth) for key, item in content}
        case "t":
            return tuple(decode(_list(content), readers, depth))
        case "s":
            return set(decode(_list(content), readers, depth))
        case "f":
            return frozenset(decode(_list(content), readers, depth))
        case "i":
            return int(content, 16)
        case "b":
            return str.encode(content, "latin-1")
        case "c":
            real, imaginary = content
            if type(real) is not float or type(imaginary) is not float:
                raise TypeError  # complex() would convert a string to a number, even NaN
            return complex(real, imaginary)
    if readers is None or tag not in readers:
        raise NotPlain("an unknown tag")
    return readers[tag](content)


def count_hashed(value: Any) -> int:
    """Return the number of values that `decode` would hash, for sets and for dicts with keys other than strings. It is
    easy to construct numbers with equal hashes, and the cost of each grows with their number."""
    count = 0
    remaining = [(value, False)]
    while remaining:
        item, is_inside = remaining.pop()
        count += is_inside
        if type(item) is list:
            remaining += [(inner, is_inside) for inner in item if is_inside or type(inner) not in _NUMBERS]
        elif type(item) is dict:
            for tag, content in item.items():
                remaining += _parts(tag, content, is_inside)
    return count


def _parts(tag: str, content: Any, is_inside: bool) -> list[tuple[Any, bool]]:
    if tag == "d" and type(content) is list:
        pairs = [pair for pair in content if type(pair) is list and len(pair) == 2]
        return [(key, True) for key, _ in pairs] + [(item, is_inside) for _, item in pairs]
    if tag == "m" and type(content) is dict:
        return [(item, is_inside) for item in content.values()]
    return [(content, is_inside or tag in ("s", "f"))]


class Encoder:
    def __init__(self, write_other: WriteOther | None = None) -> None:
        self._write_other = write_other
        self._left = MAX_VALUES

    def encode(self, value: Any, depth: int) -> Any:
        """Return the encoding of a value. Raises NotPlain if it can't be encoded, and any exception that a value of
        another type raises meanwhile."""
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is int:
            return value if -_MAX_DECIMAL < value < _MAX_DECIMAL else {"i": hex(value)}
        if depth > MAX_DEPTH:
            raise NotPlain(f"a value nested deeper than {MAX_DEPTH}")
        if kind is list:
            return self.items(value, depth)
        if kind is tuple:
            return {"t": self.items(value, depth)}
        if kind is dict:
            return self._dict(value, depth)
        return self._encode_rare(value, kind, depth)

    def items(self, values: Sequence[Any], depth: int) -> list[Any]:
        self._left -= len(values) + 1
        if self._left < 0:
            raise NotPlain(f"more than {MAX_VALUES:,} values")
        kinds = set(map(type, values))
        if kinds <= _ATOMS or (kinds == _INT and max(values) < _MAX_DECIMAL and min(values) > -_MAX_DECIMAL):
            return list(values)
        encode, depth = self.encode, depth + 1
        return [item if type(item) in _ATOMS else encode(item, depth) for item in values]

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str for key in value):
            return {"m": dict(zip(value, self.items(list(value.values()), depth), strict=True))}
        encode, depth = self.encode, depth + 1
        self._left -= 2 * len(value) + 1
        if self._left < 0:
            raise NotPlain(f"more than {MAX_VALUES:,} values")
        return {"d": [[encode(key, depth), encode(item, depth)] for key, item in value.items()]}

    def _encode_rare(self, value: Any, kind: type, depth: int) -> Any:
        if kind in _KEPT_TYPES and self._write_other is not None:
            return self._write_other(self, value, depth)
        if kind is set or kind is frozenset:
            return {"s" if kind is set else "f": self.items(list(value), depth)}
        if kind is bytes or kind is bytearray:
            return {"b": value.decode("latin-1")}
        if kind is complex:
            return {"c": [value.real, value.imag]}
        if issubclass(kind, float):
            return float.__pos__(value)
        if issubclass(kind, int):
            return self.encode(int.__pos__(value), depth)
        if issubclass(kind, str):
            return str.__str__(value)
        if issubclass(kind, list):
            return self.encode(list.__getitem__(value, slice(None)), depth)
        if issubclass(kind, tuple):
            return self.encode(tuple.__getitem__(value, slice(None)), depth)
        if issubclass(kind, dict):
            return self.encode(dict(dict.items(value)), depth)
        if issubclass(kind, bytes):
            return {"b": bytes.decode(value, "latin-1")}
        if issubclass(kind, set):
            return self.encode(set(set.__iter__(value)), depth)
        if issubclass(kind, frozenset):
            return self.encode(frozenset(frozenset.__iter__(value)), depth)
        if self._write_other is not None:
            return self._write_other(self, value, depth)
        if is_numpy(kind):
            return self.encode(value.tolist(), depth + 1)
        raise NotPlain(type_phrase(kind))


def is_numpy(kind: type) -> bool:
    """Return whether a type is a numpy scalar or array type, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.generic, numpy.ndarray))


def type_phrase(kind: type) -> str:
    """Return a type's name with an article: "a Stack", "an int"."""
    name = type.__getattribute__(kind, "__name__")[:80]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _list(content: Any) -> list[Any]:
    if type(content) is not list:
        raise TypeError
    return content
