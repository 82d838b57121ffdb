"""Passing of exceptions between processes, as a name, text and plain values, to be recreated on the other side."""

import builtins
import sys
from collections.abc import Callable
from typing import Any

from workers.sandbox import plain_values

MAX_MESSAGE_LENGTH = 500
_MAX_ATTRIBUTES_LENGTH = 4 * MAX_MESSAGE_LENGTH
"""Maximum length of an exception's arguments and attributes when written, in characters."""
_ERRORS = {
    name: kind for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
}
_BUILTIN = frozenset(_ERRORS.values())
_LIBRARY = {
    ("json.decoder", "JSONDecodeError"): "json",
    ("statistics", "StatisticsError"): "statistics",
    **{("decimal", name): "decimal" for name in ("DecimalException", "InvalidOperation", "DivisionByZero", "Overflow")},
    **{("_queue", "Empty"): "queue", ("queue", "Full"): "queue", ("binascii", "Error"): "binascii"},
    **{("struct", "error"): "struct", ("re", "error"): "re", ("zlib", "error"): "zlib", ("_csv", "Error"): "csv"},
    **{("ipaddress", name): "ipaddress" for name in ("AddressValueError", "NetmaskValueError")},
    **{("configparser", name): "configparser" for name in ("Error", "NoSectionError", "NoOptionError")},
    **{("dataclasses", "FrozenInstanceError"): "dataclasses", ("graphlib", "CycleError"): "graphlib"},
    ("numpy.linalg", "LinAlgError"): "numpy.linalg",
    ("xml.etree.ElementTree", "ParseError"): "xml.etree.ElementTree",
}
"""Modules that provide library exceptions, by (module that they claim, name); these exceptions keep their type.
Exceptions with a meaning for test runners (SkipTest) must not be listed."""


def as_plain(error: BaseException) -> dict[str, Any]:
    """Return an exception as {"name", "text", "bases", "library", "args", "holds"}, without ever raising. "bases" are
    its builtin types, the nearest first; "library" is a library type among its bases, or None; "args" and "holds" (its
    attributes) are plain values, or None."""
    kind = type(error)
    raised: dict[str, Any] = {"name": kind.__name__[:80], "text": text(error)}
    raised["bases"] = [base.__name__ for base in kind.__mro__ if base in _BUILTIN]
    origins = ((base.__module__, base.__qualname__) for base in kind.__mro__)
    reads: dict[str, Callable[[], Any]] = {
        "library": lambda: next(list(origin) for origin in origins if origin in _LIBRARY),
        "args": lambda: list(error.args),
        "holds": lambda: dict(vars(error)),
    }
    for key, read in reads.items():
        raised[key] = None
        try:
            values = read()
            if len(repr(plain_values.encode(values))) < _MAX_ATTRIBUTES_LENGTH:
                raised[key] = values
        except BaseException:  # noqa: S112  the text is enough
            continue
    return raised


def text(error: BaseException) -> str:
    """Return an exception's text, truncated. This may run untrusted code."""
    try:
        return str.__str__(str(error))[:MAX_MESSAGE_LENGTH]
    except BaseException:
        return "an exception without readable text"


def recreate(raised: Any) -> BaseException:
    """Recreate an exception and return it: with its builtin or known library type, or with a new type that has its
    builtin bases."""
    if type(raised) is not dict:
        return RuntimeError("an exception without a name")
    name, message, args = str(raised.get("name"))[:80], str(raised.get("text"))[:MAX_MESSAGE_LENGTH], raised.get("args")
    error = _instance(_type_of(name, raised), args if type(args) is list else [message], message)
    if error is None:
        return Exception(f"{name}: {message}")
    holds = raised.get("holds")
    if type(holds) is dict and hasattr(error, "__dict__"):
        error.__dict__.update((key, value) for key, value in holds.items() if type(key) is str and key[:2] != "__")
    return error


def _type_of(name: str, raised: dict[str, Any]) -> type[BaseException]:
    bases = raised.get("bases")
    names = bases if type(bases) is list else []
    builtin_bases = [_ERRORS[base] for base in names if type(base) is str and base in _ERRORS]
    kind = _ERRORS.get(name)
    if kind is not None and kind in builtin_bases:
        return kind
    derived = [base for kind in builtin_bases for base in kind.__mro__[1:]]
    nearest = [base for base in builtin_bases if base not in derived]
    library = _of_library(raised.get("library"))
    if library is not None:
        if library.__name__ == name:
            return library
        nearest = [library]
    name = name if name.isidentifier() else "Error"
    try:
        return type(name, tuple(nearest) or (Exception,), {})
    except TypeError:  # the bases can't be combined
        return type(name, (nearest[0],), {})


def _of_library(origin: Any) -> type[BaseException] | None:
    module = _LIBRARY.get(tuple(origin)) if type(origin) is list and all(type(part) is str for part in origin) else None
    if module is None:
        return None
    try:
        __import__(module)
    except ImportError:
        return None
    attribute = getattr(sys.modules[module], origin[1], None)
    return attribute if isinstance(attribute, type) and issubclass(attribute, BaseException) else None


def _instance(kind: type[BaseException], args: list[Any], message: str) -> BaseException | None:
    for arguments in (args, [message]):
        try:
            return kind(*arguments)
        except Exception:  # noqa: S112  some types need other arguments than they store
            continue
    try:
        error = kind.__new__(kind)
        error.args = tuple(args)
    except Exception:  # a library's class may refuse even this; the caller still has the text
        return None
    return error
