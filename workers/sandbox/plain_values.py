"""Passes plain values between processes, as JSON with tags. Nothing is unpickled and nothing is executed.

JSON's null, booleans, numbers, texts and arrays stand for None, bool, int, float, str and list; every other type is an
object with one member, named by the tag. Decoding yields exactly these types. An instance of a subclass is passed as
its plain value, which the plain type's own methods return, so that no override is called.
"""

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

DEEPEST = 100
"""The deepest nesting of containers."""
_DEEPEST_READ = 2 * DEEPEST + 20
"""The deepest nesting of JSON: each container with its tag, and the message around them."""
MAX_VALUES = 500_000
"""The largest number of values in a message: shared objects are written each time, and may grow without bound."""
_KEPT = frozenset((bytearray, Counter, OrderedDict, defaultdict))
"""Types that are written as plain values only without an encoder for them."""
_DECIMAL = 10**4000
"""The int from which hexadecimal is used: Python refuses more than 4,300 decimal digits."""
_ATOMS = frozenset((type(None), bool, float, str))
_INT = frozenset((int,))
_NUMBERS = _ATOMS | _INT


class NotPlain(Exception):
    """A value is not plain. The message describes the value."""


WriteOther = Callable[["Encoder", Any, int], Any]
"""An Encoder's function for other types: (encoder, value, depth) -> JSON. Raises NotPlain."""


def encode(value: object, write_other: WriteOther | None = None) -> Any:
    """Turn a value into one for json.dumps. Raises NotPlain."""
    return value if type(value) in _ATOMS else Encoder(write_other).encode(value, 0)


def decode(value: Any, readers: Mapping[str, Callable[[Any], Any]] | None = None, depth: int = 0) -> Any:
    """Turn json.loads' result into a value. Raises NotPlain, ValueError, TypeError, RecursionError. `readers`: tag ->
    reader, for further tags."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    depth += 1
    if depth > _DEEPEST_READ:
        raise NotPlain(f"a value nested deeper than {DEEPEST}")
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
                raise TypeError  # complex() would convert text to a number, even NaN
            return complex(real, imaginary)
    if readers is None or tag not in readers:
        raise NotPlain("an unknown tag")
    return readers[tag](content)


def hashed(value: Any) -> int:
    """Count the values that `decode` would hash for sets, and for dicts with keys other than texts. Numbers with equal
    hashes are easy to make, and the cost of each grows with their number."""
    count = 0
    remaining = [(value, False)]
    while remaining:
        item, inside = remaining.pop()
        count += inside
        if type(item) is list:
            remaining += [(inner, inside) for inner in item if inside or type(inner) not in _NUMBERS]
        elif type(item) is dict:
            for tag, content in item.items():
                remaining += _parts(tag, content, inside)
    return count


def _parts(tag: str, content: Any, inside: bool) -> list[tuple[Any, bool]]:
    if tag == "d" and type(content) is list:
        pairs = [pair for pair in content if type(pair) is list and len(pair) == 2]
        return [(key, True) for key, _ in pairs] + [(item, inside) for _, item in pairs]
    if tag == "m" and type(content) is dict:
        return [(item, inside) for item in content.values()]
    return [(content, inside or tag in ("s", "f"))]


class Encoder:
    def __init__(self, write_other: WriteOther | None = None) -> None:
        self._write_other = write_other
        self._left = MAX_VALUES

    def encode(self, value: Any, depth: int) -> Any:
        """Encode a value. Raises NotPlain, and any exception of a value beyond plain types."""
        kind = type(value)
        if kind in _ATOMS:
            return value
        if kind is int:
            return value if -_DECIMAL < value < _DECIMAL else {"i": hex(value)}
        if depth > DEEPEST:
            raise NotPlain(f"a value nested deeper than {DEEPEST}")
        if kind is list:
            return self.items(value, depth)
        if kind is tuple:
            return {"t": self.items(value, depth)}
        if kind is dict:
            return self._dict(value, depth)
        return self._rarer(value, kind, depth)

    def items(self, values: Sequence[Any], depth: int) -> list[Any]:
        self._left -= len(values) + 1
        if self._left < 0:
            raise NotPlain(f"more than {MAX_VALUES:,} values")
        kinds = set(map(type, values))
        if kinds <= _ATOMS or (kinds == _INT and max(values) < _DECIMAL and min(values) > -_DECIMAL):
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

    def _rarer(self, value: Any, kind: type, depth: int) -> Any:
        if kind in _KEPT and self._write_other is not None:
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
        raise NotPlain(described(kind))


def is_numpy(kind: type) -> bool:
    """Return whether a type is a numpy scalar or array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.generic, numpy.ndarray))


def described(kind: type) -> str:
    """Describe a type in words: "a Stack", "an int"."""
    name = type.__getattribute__(kind, "__name__")[:80]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _list(content: Any) -> list[Any]:
    if type(content) is not list:
        raise TypeError
    return content
