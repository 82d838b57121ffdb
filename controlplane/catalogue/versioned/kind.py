"""A kind of named items with versions: reward configs, environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.environments.entry import Entry
from workers.rewards.reward import Reward


@dataclass(frozen=True)
class ItemKind:
    """The names of one kind of item, and the composition of its versions."""

    name: str
    """A single item, in words."""
    slug: str
    """Its name among the kinds that can be deleted and renamed (runs.pages.trash)."""
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

    @property
    def part(self) -> str:
        """A single part, in words."""
        return self.parts.removesuffix("s")
