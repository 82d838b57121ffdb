"""The library and an environment's tools, as shown on the pages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.library import COSTS, LibraryShelf
from controlplane.platform.accounts.models import User
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.entry import Entry, EntryKind, ToolDescription
from workers.environments.executor import Executor, Unusable
from workers.environments.library import LIBRARY
from workers.rewards.reward import Cost

PREVIEW_TIMEOUT_S = 30.0
"""Time limit for opening the parts of a preview."""
KINDS = {EntryKind.TOOL: "Tools", EntryKind.GAME: "Games", EntryKind.SERVER: "Servers"}


@dataclass(frozen=True)
class LibraryPart:
    entry: Entry
    cost: str
    offered: bool


@dataclass(frozen=True)
class Preview:
    tools: list[ToolDescription]
    has_game: bool = False
    problem: str = ""
    """Why the tools can't be shown, or ""."""

    @property
    def schemas(self) -> list[tuple[str, str]]:
        """Names of the tools, each with its JSON for the chat template."""
        return [(tool.name, json.dumps(tool.as_dict(), indent=2, ensure_ascii=False)) for tool in self.tools]


def shelves(user: User) -> list[LibraryShelf[LibraryPart]]:
    """Group all entries by kind, each kind in the library's order."""
    shelves: dict[EntryKind, list[LibraryPart]] = {kind: [] for kind in KINDS}
    for entry in LIBRARY.values():
        offered = user.may_administer or not entry.admin_only
        shelves[entry.kind].append(LibraryPart(entry, COSTS[entry.cost], offered))
    return [LibraryShelf(KINDS[kind], entries) for kind, entries in shelves.items() if entries]


def costly_parts(specs: Sequence[PartSpec]) -> list[str]:
    """Return the names of the parts whose preview starts the sandbox or calls a server."""
    return [spec.name for spec in specs if spec.function in LIBRARY and LIBRARY[spec.function].cost is not Cost.PURE]


def preview(specs: Sequence[PartSpec]) -> Preview:
    """Open every part once, as a run does, and return the tools, or the problem that prevents it."""
    try:
        executor = Executor(specs, EpisodeLimits(), turns.turn(PREVIEW_TIMEOUT_S).tools)
    except Unusable as error:
        return Preview([], problem=str(error))
    return Preview(executor.descriptions, executor.has_game)
