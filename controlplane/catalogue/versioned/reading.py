"""The stored parts of a version: in the contract's types, complete, and for pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from controlplane.catalogue.versioned.kind import ItemKind
from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.environments.entry import Entry
from workers.rewards.reward import Reward

LONG = 60
"""Longer or multi-line texts are shown separately."""
SpecT = TypeVar("SpecT")


@dataclass(frozen=True)
class PartView:
    spec: Any
    entry: Entry | Reward | None
    """None: no longer in the library."""
    params: list[tuple[str, Any]]
    """Short parameters that differ from the defaults."""
    texts: list[tuple[str, str]]
    """Long ones: code, schemas, rubrics."""


def readable(parts: Iterable[Any], spec: type[SpecT]) -> list[SpecT]:
    """The parts that the contract can read, in its types."""
    specs = []
    for part in parts:
        try:
            specs.append(from_dict(spec, part))
        except ContractError:
            continue
    return specs


def in_order(kind: ItemKind, spec: SpecT) -> SpecT:
    """The part with its parameters as its entry lists them, unknown ones last."""
    stored, entry = spec.params, kind.library.get(spec.function)  # type: ignore[attr-defined]  # every kind's parts
    names = [*(entry.defaults() if entry else {}), *sorted(stored)]
    return replace(spec, params={name: stored[name] for name in dict.fromkeys(names) if name in stored})  # type: ignore[type-var]


def full_params(kind: ItemKind, function: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """All parameters; missing ones are the entry's defaults."""
    entry = kind.library.get(function)
    return {**(entry.defaults() if entry else {}), **params}


def full(kind: ItemKind, part: dict[str, Any]) -> dict[str, Any]:
    """The part with all its fields and parameters; as it is if the contract can't read it."""
    try:
        spec = to_dict(from_dict(kind.spec, part))
    except ContractError:
        return part
    return {**spec, "params": full_params(kind, spec["function"], spec["params"])}


def title(kind: ItemKind, function: str) -> str:
    entry = kind.library.get(function)
    return entry.title if entry else function


def parts(kind: ItemKind, specs: Iterable[Any]) -> list[PartView]:
    return [_part(kind.library.get(spec.function), spec) for spec in specs]


def _part(entry: Entry | Reward | None, spec: Any) -> PartView:
    defaults = entry.defaults() if entry else {}
    changed = {name: value for name, value in spec.params.items() if name not in defaults or defaults[name] != value}
    texts = {name: value for name, value in changed.items() if _is_long(value)}
    return PartView(
        spec, entry, [(name, value) for name, value in changed.items() if name not in texts], list(texts.items())
    )


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and (len(value) > LONG or "\n" in value)
