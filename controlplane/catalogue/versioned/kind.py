"""Kinds of named items with versions: reward configs and environments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.environments.entry import Entry
from workers.rewards.reward import Reward


@dataclass(frozen=True)
class ItemKind:
    """Names of one kind of item, and the structure of its versions."""

    name: str
    """Singular noun for an item."""
    slug: str
    """Name of the kind in runs.engine.trash."""
    page: str
    """Title of the list of items."""
    route: str
    """Name of an item's route, and prefix of the names of its actions' routes."""
    version_route: str
    item: str
    """Column of a version that refers to its item."""
    parts: str
    """Column of a version with the list of its parts; also the plural noun for them."""
    spec: type[Any]
    """The contract's class for a part, with name, function and params."""
    library: Mapping[str, Entry | Reward]
    """Functions by key."""
    entry: str
    """Singular noun for a function of the library."""

    @property
    def part(self) -> str:
        """Singular noun for a part."""
        return self.parts.removesuffix("s")

    def title(self, function: str) -> str:
        entry = self.library.get(function)
        return entry.title if entry else function

    def specs(self, parts: Iterable[Any]) -> list[Any]:
        """Return the stored parts that the contract can read. Each has its parameters in the library's order, which
        PostgreSQL's JSON doesn't keep, and unknown parameters last."""
        specs = []
        for part in parts:
            try:
                spec = from_dict(self.spec, part)
            except ContractError:
                continue
            entry = self.library.get(spec.function)
            names = [*(entry.defaults() if entry else {}), *sorted(spec.params)]
            params = {name: spec.params[name] for name in dict.fromkeys(names) if name in spec.params}
            specs.append(replace(spec, params=params))
        return specs

    def full_params(self, function: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, with the entry's defaults for missing ones."""
        entry = self.library.get(function)
        return {**(entry.defaults() if entry else {}), **params}

    def full(self, part: dict[str, Any]) -> dict[str, Any]:
        """Return a part with all fields and parameters filled in, or unchanged if the contract can't read it."""
        try:
            spec = to_dict(from_dict(self.spec, part))
        except ContractError:
            return part
        return {**spec, "params": self.full_params(spec["function"], spec["params"])}
