"""A kind of named items with versions: reward configs, environments."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.wire.documents import ContractError, from_dict, to_dict
from workers.environments.entry import Entry
from workers.rewards.reward import Reward


@dataclass(frozen=True)
class ItemKind:
    """The names of one kind of item, and the composition of its versions."""

    name: str
    """A single item, in words."""
    slug: str
    """The name of the kind in runs.engine.trash."""
    page: str
    """The title of their list."""
    route: str
    """The name of an item's route, and the start of those of its actions."""
    version_route: str
    item: str
    """The column of a version that refers to its item."""
    parts: str
    """The column with the list of its parts; also their name in words."""
    spec: type[Any]
    """A part in the contract: name, function, params."""
    library: Mapping[str, Entry | Reward]
    """The functions."""
    entry: str
    """A single function of the library, in words."""

    @property
    def part(self) -> str:
        """A single part, in words."""
        return self.parts.removesuffix("s")

    def title(self, function: str) -> str:
        entry = self.library.get(function)
        return entry.title if entry else function

    def specs(self, parts: Iterable[Any]) -> list[Any]:
        """Read the stored parts that the contract can read, each with its parameters in the library's order
        (PostgreSQL's JSON has none) and unknown ones last."""
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
        """Add the entry's defaults of missing parameters."""
        entry = self.library.get(function)
        return {**(entry.defaults() if entry else {}), **params}

    def full(self, part: dict[str, Any]) -> dict[str, Any]:
        """Fill in a part's fields and parameters. A part that the contract can't read stays as it is."""
        try:
            spec = to_dict(from_dict(self.spec, part))
        except ContractError:
            return part
        return {**spec, "params": self.full_params(spec["function"], spec["params"])}
