"""Passing of values beyond plain ones between a candidate and its verifier; the other side recreates equivalents.

Iterators are drained, and iterated again on the other side. Views and the standard library's numbers are recreated.
Builtin functions are passed by name, as are a candidate's functions that a test passes back (`apply(square, 3)`).
"""

import builtins
import re
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

from workers.sandbox import exceptions
from workers.sandbox.plain_values import Encoder, NotPlain, decode, is_numpy, type_phrase

MAX_DRAINED = 10_000
"""Maximum number of values read from an iterator, which may be endless; using more of them fails."""
_MAX_DRAINED_BYTES = 200_000
"""Maximum size of an iterator's values when written, because those of an endless iterator may grow."""
_NAMES = (
    *("abs", "all", "any", "bool", "bytes", "chr", "complex", "dict", "divmod", "float", "frozenset", "hash", "hex"),
    *("int", "len", "list", "max", "min", "object", "oct", "ord", "pow", "range", "repr", "reversed", "round"),
    *("set", "sorted", "str", "sum", "tuple", "type"),
)
_BUILTINS = {name: getattr(builtins, name) for name in _NAMES}
_NAME_OF = {function: name for name, function in _BUILTINS.items()}
_BY_NAME = (type, type(len))
_VIEWS = {type({}.keys()): "keys", type({}.values()): "values", type({}.items()): "items"}
_DTYPE = re.compile(r"[<>|=]?[biufc]\d{1,2}\Z")
_MAPPINGS = (dict, Counter, OrderedDict, defaultdict)
_CONTAINERS = (list, deque, tuple, set, bytearray, *_MAPPINGS)
_DICTS: dict[Any, str] = {Counter: "Counter", OrderedDict: "OrderedDict"}
_LIBRARY_FUNCTIONS = ("operator", "_operator", "math")


class IteratorTruncated(Exception):
    """Error for a request for more values of an iterator than were read from it."""


class Stub:
    """A stand-in for a candidate's function in a test: it has the function's name and forwards calls."""

    __slots__ = ("__name__", "_call")

    def __init__(self, name: str, call: Callable[[str, tuple[Any, ...], dict[str, Any]], Any]) -> None:
        self.__name__ = name
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(self.__name__, args, kwargs)

    def __repr__(self) -> str:
        return f"<function {self.__name__}>"


def write(encoder: Encoder, value: Any, depth: int) -> Any:
    """Return the encoding of a value that is not plain, for plain_values.encode. Raises NotPlain if it has no encoding,
    and any exception that an iterator raises."""
    kind = type(value)
    if kind is Stub:
        return {"name": value.__name__}
    if kind is range:
        return {"range": [encoder.encode(bound, depth) for bound in (value.start, value.stop, value.step)]}
    if kind in _VIEWS:
        return {_VIEWS[kind]: encoder.items(list(value), depth)}
    if kind is deque:
        return {"deque": encoder.items(list(value), depth)}
    if kind in _DICTS:
        return {_DICTS[kind]: [encoder.items(pair, depth) for pair in dict.items(value)]}
    if kind is defaultdict:
        factory = _NAME_OF.get(value.default_factory) if type(value.default_factory) in _BY_NAME else None
        return {"defaultdict": [factory, [encoder.items(pair, depth) for pair in dict.items(value)]]}
    if kind is bytearray:
        return {"bytearray": value.decode("latin-1")}
    if kind is slice:
        return {"slice": [encoder.encode(bound, depth) for bound in (value.start, value.stop, value.step)]}
    if value is ...:
        return {"ellipsis": 0}
    if kind in _BY_NAME:
        if value in _NAME_OF:
            return {"builtin": _NAME_OF[value]}
        if kind is _BY_NAME[1] and value.__module__ in _LIBRARY_FUNCTIONS:
            return {"function": [value.__module__, value.__name__]}
    if is_numpy(kind):
        return _numpy(encoder, value, depth)
    if hasattr(kind, "__next__") and hasattr(kind, "__iter__"):
        return {"iterator": _drain(encoder, value, depth)}
    for module, name, write, _ in _LIBRARY:
        loaded_module = sys.modules.get(module)
        if loaded_module is not None and kind is getattr(loaded_module, name, None):
            return {name: encoder.encode(write(value), depth)}
    raise NotPlain(type_phrase(kind))


def write_untouched(encoder: Encoder, value: Any, depth: int) -> Any:
    """Encode a value as `write` does, but raise NotPlain for an iterator instead of consuming it."""
    kind = type(value)
    if hasattr(kind, "__next__"):
        raise NotPlain(type_phrase(kind))
    return write(encoder, value, depth)


def _drain(encoder: Encoder, iterator: Iterator[Any], depth: int) -> list[Any]:
    """Read an iterator, and return its values, whether there are more, and its exception. Raises NotPlain for values
    that can't be encoded."""
    values: list[Any] = []
    size = 0
    while True:
        try:
            value = next(iterator)
        except StopIteration:
            return [values, False, None]
        except Exception as error:
            return [values, False, encoder.encode(exceptions.as_plain(error), depth)]
        if len(values) == MAX_DRAINED or size > _MAX_DRAINED_BYTES:
            return [values, True, None]
        encoded = encoder.items([value], depth)[0]
        size += len(ascii(encoded))
        values.append(encoded)


def _numpy(encoder: Encoder, value: Any, depth: int) -> Any:
    if value.shape == ():
        return encoder.encode(value.item(), depth + 1)
    return {"array": [value.dtype.str, encoder.encode(value.tolist(), depth + 1)]}


def _array(content: Any) -> Any:
    dtype, values = content[0], decode(content[1], READERS)
    if not _DTYPE.match(dtype):
        raise NotPlain(f"an array of {dtype[:20]}")
    try:
        import numpy
    except ImportError:
        return values
    array = numpy.array(values)
    if array.dtype.kind not in "biufc":
        raise NotPlain("an array of something other than numbers")  # numpy would convert strings to numbers, even NaN
    return array.astype(dtype)


def _iterator(content: Any) -> Iterator[Any]:
    values, is_more, raised = content
    return _replay(decode(values, READERS), is_more is True, None if raised is None else decode(raised, READERS))


def _replay(values: list[Any], is_more: bool, raised: Any) -> Iterator[Any]:
    yield from values
    if raised is not None:
        raise exceptions.recreate(raised)
    if is_more:
        raise IteratorTruncated(f"More than {len(values):,} values are requested from an iterator.")


def _function(content: Any) -> Any:
    module, name = content
    if module not in _LIBRARY_FUNCTIONS or name[:1] == "_" or name == "call":
        raise NotPlain("a function")
    __import__(module)
    function = getattr(sys.modules[module], name)
    if type(function) is not _BY_NAME[1]:
        raise NotPlain("a function")
    return function


def _pairs(content: Any) -> list[tuple[Any, Any]]:
    return [(key, value) for key, value in decode(content, READERS)]


def _default(content: Any) -> Any:
    factory, pairs = content
    return defaultdict(None if factory is None else _BUILTINS[factory], _pairs(pairs))


def change(old: Any, new: Any) -> None:
    """Change a container in place, recursively, so that it equals another one of its type."""
    kind = type(old)
    if kind is not type(new):
        return
    if kind in (list, deque, tuple):
        items = [
            item if _change_if_possible(item, new_item) else new_item for item, new_item in zip(old, new, strict=False)
        ]
        if kind is list:
            old[:] = [*items, *new[len(items) :]]
        elif kind is deque:
            items += list(new)[len(items) :]
            old.clear()
            old.extend(items)
    elif kind in _MAPPINGS:
        table = {
            key: old[key] if key in old and _change_if_possible(old[key], item) else item for key, item in new.items()
        }
        old.clear()
        dict.update(old, table)
    elif kind is set:
        old.clear()
        old.update(new)
    elif kind is bytearray:
        old[:] = new


def _can_keep(old: Any, new: Any) -> bool:
    return type(old) is type(new) and (type(old) in _CONTAINERS or bool(old == new))


def _change_if_possible(old: Any, new: Any) -> bool:
    if type(old) is not type(new) or type(old) not in _CONTAINERS:
        return False
    if type(old) is tuple and (len(old) != len(new) or not all(map(_can_keep, old, new))):
        return False
    change(old, new)
    return True


def _of_library(module: str, name: str, read: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def make(content: Any) -> Any:
        __import__(module)
        return read(getattr(sys.modules[module], name), decode(content))

    return make


def _decimal(kind: Any, content: Any) -> Any:
    """Recreate a decimal. A NaN must also be a NaN in the JSON, so that no message contains an unnoticed NaN."""
    text, number = content
    if type(text) is not str:
        raise TypeError
    value = kind(text)
    if value.is_nan() and number == number:
        raise NotPlain("an undeclared NaN")
    return value


_ISO_TYPES = ("datetime", "date", "time")
_LIBRARY: tuple[tuple[str, str, Callable[[Any], Any], Callable[[Any, Any], Any]], ...] = (
    ("decimal", "Decimal", lambda value: (str(value), float("nan") if value.is_nan() else 0.0), _decimal),
    ("fractions", "Fraction", lambda value: (value.numerator, value.denominator), lambda kind, content: kind(*content)),
    *(("datetime", name, lambda v: v.isoformat(), lambda kind, v: kind.fromisoformat(v)) for name in _ISO_TYPES),
    *(("pathlib", name, str, lambda kind, content: kind(content)) for name in ("PosixPath", "PurePosixPath")),
    ("datetime", "timedelta", lambda v: (v.days, v.seconds, v.microseconds), lambda kind, content: kind(*content)),
)

READERS: dict[str, Callable[[Any], Any]] = {
    "range": lambda content: range(*decode(content)),
    "keys": lambda content: dict.fromkeys(decode(content, READERS)).keys(),
    "values": lambda content: dict(enumerate(decode(content, READERS))).values(),
    "items": lambda content: dict(decode(content, READERS)).items(),
    "deque": lambda content: deque(decode(content, READERS)),
    "iterator": _iterator,
    "Counter": lambda content: Counter(dict(_pairs(content))),
    "OrderedDict": lambda content: OrderedDict(_pairs(content)),
    "defaultdict": _default,
    "bytearray": lambda content: bytearray(content, "latin-1"),
    "slice": lambda content: slice(*decode(content, READERS)),
    "ellipsis": lambda _: ...,
    "function": _function,
    "builtin": lambda content: _BUILTINS[content],
    "array": _array,
    **{name: _of_library(module, name, read) for module, name, _, read in _LIBRARY},
}
