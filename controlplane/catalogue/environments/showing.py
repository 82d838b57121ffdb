"""The library and an environment's tools, as shown on the pages."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.catalogue.environments.opening import opened
from controlplane.catalogue.rewards.library import COSTS, LibrarySection
from controlplane.platform.accounts.models import User
from controlplane.platform.confined.limits import Busy
from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.entry import Entry, EntryKind, ToolDescription
from workers.environments.executor import Unusable
from workers.environments.library import LIBRARY
from workers.rewards.reward import Cost

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
    """Reason why the tools can't be shown, or ""."""

    @property
    def schemas(self) -> list[tuple[str, str]]:
        """Pairs of a tool's name and its JSON schema, as given to the chat template."""
        return [(tool.name, json.dumps(tool.as_dict(), indent=2, ensure_ascii=False)) for tool in self.tools]


def library_sections(user: User) -> list[LibrarySection[LibraryPart]]:
    """Group all entries by kind, each kind in the library's order."""
    parts_by_kind: dict[EntryKind, list[LibraryPart]] = {kind: [] for kind in KINDS}
    for entry in LIBRARY.values():
        is_offered = user.may_administer or not entry.admin_only
        parts_by_kind[entry.kind].append(LibraryPart(entry, COSTS[entry.cost], is_offered))
    return [LibrarySection(KINDS[kind], entries) for kind, entries in parts_by_kind.items() if entries]


def costly_parts(specs: Sequence[PartSpec]) -> list[str]:
    """Return the names of the parts whose preview starts the sandbox or calls a server."""
    return [spec.name for spec in specs if spec.function in LIBRARY and LIBRARY[spec.function].cost is not Cost.PURE]


def preview(specs: Sequence[PartSpec]) -> Preview:
    """Open every part once, as a run does, and return the tools, or the problem that prevented it."""
    try:
        environment = opened(specs, EpisodeLimits())
    except (Unusable, Busy) as error:
        return Preview([], problem=str(error))
    return Preview(environment.tools, environment.has_game)
