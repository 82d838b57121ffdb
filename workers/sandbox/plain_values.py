"""Plain values between processes, as JSON with tags. Nothing is unpickled and nothing is executed.

JSON's null, booleans, numbers, texts and arrays stand for None, bool, int, float, str and list; every other type is an
object with one member, named by the tag. Decoding yields exactly these types: a subclass crosses as its plain value,
obtained by the plain type's own methods, so that no override is called.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

DEEPEST = 100
"""Nested containers."""
_DEEPEST_READ = 2 * DEEPEST + 20
"""Nested JSON: a container and its tag, and the message around them."""
MAX_VALUES = 500_000
"""Values per message: shared objects are written out each time, and may grow without bound."""
_KEPT = frozenset((bytearray, Counter, OrderedDict, defaultdict))
"""Types that are plain only without an encoder for them."""
_DECIMAL = 10**4000
"""From here on an int is written as hexadecimal: Python refuses more than 4,300 decimal digits."""
_ATOMS = frozenset((type(None), bool, float, str))
_INT = frozenset((int,))
_NUMBERS = _ATOMS | _INT


class NotPlain(Exception):
    """A value that is not plain. The text says what it is."""


More = Callable[["Encoder", Any, int], Any]
"""An Encoder's function for types that it doesn't know: (itself, value, depth) -> JSON. Raises NotPlain."""


def encode(value: object, more: More | None = None) -> Any:
    """A value for json.dumps. Raises NotPlain."""
    return value if type(value) in _ATOMS else Encoder(more).encode(value, 0)


def decode(value: Any, more: Mapping[str, Callable[[Any], Any]] | None = None, depth: int = 0) -> Any:
    """The value of json.loads' result, with `more` tags. Raises NotPlain, ValueError, TypeError, RecursionError."""
    kind = type(value)
    if kind is not list and kind is not dict:
        return value
    depth += 1
    if depth > _DEEPEST_READ:
        raise NotPlain(f"a value nested deeper than {DEEPEST}")
    if kind is list:
        return [one if type(one) in _NUMBERS else decode(one, more, depth) for one in value]
    ((tag, held),) = value.items()
    match tag:
        case "m":
            return {key: one if type(one) in _NUMBERS else decode(one, more, depth) for key, one in dict.items(held)}
        case "d":
            return {decode(key, more, depth): decode(one, more, depth) for key, one in held}
        case "t":
            return tuple(decode(_list(held), more, depth))
        case "s":
            return set(decode(_list(held), more, depth))
        case "f":
            return frozenset(decode(_list(held), more, depth))
        case "i":
            return int(held, 16)
        case "b":
            return str.encode(held, "latin-1")
        case "c":
            real, imaginary = held
            if type(real) is not float or type(imaginary) is not float:
                raise TypeError  # complex() would convert text to a number, even NaN
            return complex(real, imaginary)
    if more is None or tag not in more:
        raise NotPlain("an unknown tag")
    return more[tag](held)


def hashed(value: Any) -> int:
    """How many values `decode` would hash for sets and for dicts with other keys than texts.

    Numbers with equal hashes are easily made, and each costs as much as all before it.
    """
    count = 0
    remaining = [(value, False)]
    while remaining:
        one, inside = remaining.pop()
        count += inside
        if type(one) is list:
            remaining += [(each, inside) for each in one if inside or type(each) not in _NUMBERS]
        elif type(one) is dict:
            for tag, held in one.items():
                remaining += _parts(tag, held, inside)
    return count


def _parts(tag: str, held: Any, inside: bool) -> list[tuple[Any, bool]]:
    if tag == "d" and type(held) is list:
        pairs = [pair for pair in held if type(pair) is list and len(pair) == 2]
        return [(key, True) for key, _ in pairs] + [(one, inside) for _, one in pairs]
    if tag == "m" and type(held) is dict:
        return [(one, inside) for one in held.values()]
    return [(held, inside or tag in ("s", "f"))]


class Encoder:
    """Encodes one value."""

    def __init__(self, more: More | None = None) -> None:
        self._more = more
        self._left = MAX_VALUES

    def encode(self, value: Any, depth: int) -> Any:
        """Raises NotPlain, and whatever a value beyond plain types raises."""
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
        return [one if type(one) in _ATOMS else encode(one, depth) for one in values]

    def _dict(self, value: dict[Any, Any], depth: int) -> Any:
        if all(type(key) is str for key in value):
            return {"m": dict(zip(value, self.items(list(value.values()), depth), strict=True))}
        encode, depth = self.encode, depth + 1
        self._left -= 2 * len(value) + 1
        if self._left < 0:
            raise NotPlain(f"more than {MAX_VALUES:,} values")
        return {"d": [[encode(key, depth), encode(one, depth)] for key, one in value.items()]}

    def _rarer(self, value: Any, kind: type, depth: int) -> Any:
        if kind in _KEPT and self._more is not None:
            return self._more(self, value, depth)
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
        if self._more is not None:
            return self._more(self, value, depth)
        if is_numpy(kind):
            return self.encode(value.tolist(), depth + 1)
        raise NotPlain(described(kind))


def is_numpy(kind: type) -> bool:
    """Whether it is a numpy scalar or array, without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(kind, (numpy.generic, numpy.ndarray))


def described(kind: type) -> str:
    """A type in words: "a Stack", "an int"."""
    name = type.__getattribute__(kind, "__name__")[:80]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _list(held: Any) -> list[Any]:
    if type(held) is not list:
        raise TypeError
    return held
