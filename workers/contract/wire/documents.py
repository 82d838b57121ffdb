"""Strict conversion between JSON and dataclasses."""

import dataclasses
import functools
import hashlib
import json
import types
import typing
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class ContractError(ValueError):
    """Error of a document that violates the contract; the message names the field."""


def to_json(value: Any) -> str:
    """Encode any contract dataclass as compact JSON."""
    return json.dumps(to_dict(value), separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Hash any contract dataclass or plain JSON with SHA-256, regardless of its keys' order, which databases change."""
    document = json.dumps(value if isinstance(value, dict) else to_dict(value), separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()


def to_dict(value: Any) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(value)))
    return result


def from_dict(cls: type[T], data: Any, *, at: str = "") -> T:
    """Build a contract dataclass from decoded JSON, strictly.

    Raises ContractError for an unknown, missing or wrongly typed field, named by its path (`run.lora.r`).
    """
    if not isinstance(data, dict):
        raise ContractError(f"{at or cls.__name__}: expected an object, got {type(data).__name__}")
    hints, fields = _shape(cls)  # type: ignore[arg-type]  # mypy takes no class of a dataclass for hashable
    unknown = sorted(set(data) - set(fields))
    if unknown:
        raise ContractError(f"{at or cls.__name__}: unknown field {unknown[0]!r}")
    values = {}
    for name, f in fields.items():
        path = f"{at}.{name}" if at else name
        if name in data:
            values[name] = _convert(hints[name], data[name], path)
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ContractError(f"{path}: missing")
    return cls(**values)


@functools.cache
def _shape(cls: type) -> tuple[dict[str, Any], dict[str, dataclasses.Field[Any]]]:
    """Look up a dataclass's types and fields. They are cached, since this costs more than the conversion itself."""
    return typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}


def _convert(hint: Any, value: Any, at: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in typing.get_args(hint):
            return None
        return _convert(next(a for a in typing.get_args(hint) if a is not type(None)), value, at)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ContractError(f"{at}: expected a list, got {type(value).__name__}")
        return tuple(_convert(typing.get_args(hint)[0], v, f"{at}[{i}]") for i, v in enumerate(value))
    if origin is dict or hint is dict:
        if not isinstance(value, dict):
            raise ContractError(f"{at}: expected an object, got {type(value).__name__}")
        return value
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(type, hint), value, at=at)
    if hint is Any:
        return value
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        try:
            return hint(value)
        except ValueError:
            raise ContractError(f"{at}: {value!r} is not one of {', '.join(hint)}") from None
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise ContractError(f"{at}: expected {hint.__name__}, got {value!r}")
    return value
