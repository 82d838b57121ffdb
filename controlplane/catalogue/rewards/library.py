"""The reward library as shown on the pages: by group, with ranges and worked examples."""

import json
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from controlplane.catalogue.rewards.balance import describe_range
from controlplane.platform.accounts.models import User
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Cost, Example, Reward, RewardGroup

EntryT = TypeVar("EntryT")

TITLES = {
    RewardGroup.FORMAT: "Format",
    RewardGroup.CORRECTNESS: "Correctness",
    RewardGroup.CODE: "Code",
    RewardGroup.SHAPE: "Length and shape",
    RewardGroup.TOOLS: "Tools and turns",
    RewardGroup.MODEL: "Judged by a model",
    RewardGroup.CUSTOM: "Your own",
    RewardGroup.TRL: "TRL's own",
}
COSTS = {
    Cost.PURE: "",
    Cost.SANDBOX: "runs in the sandbox",
    Cost.HTTP: "calls a server",
    Cost.TRAINER: "scored by the trainer only",
}


@dataclass(frozen=True)
class WorkedExample:
    example: Example
    params: dict[str, Any]
    """Parameters that differ from the defaults."""
    row: list[tuple[str, str]]
    """Pairs of a column of the row and its value as a string."""


@dataclass(frozen=True)
class LibraryEntry:
    reward: Reward
    span: str
    cost: str
    examples: list[WorkedExample]
    offered: bool


@dataclass(frozen=True)
class LibrarySection(Generic[EntryT]):
    title: str
    entries: list[EntryT]


def groups(user: User) -> list[LibrarySection[LibraryEntry]]:
    """Group all rewards, each group in the library's order."""
    sections = [
        LibrarySection(TITLES[group], [_entry(reward, user) for reward in LIBRARY.values() if reward.group == group])
        for group in RewardGroup
    ]
    return [section for section in sections if section.entries]


def _entry(reward: Reward, user: User) -> LibraryEntry:
    return LibraryEntry(
        reward=reward,
        span=describe_range(*reward.range),
        cost=COSTS[reward.cost],
        examples=[
            WorkedExample(example, dict(example.params), [(name, _text(value)) for name, value in example.row.items()])
            for example in reward.examples
        ],
        offered=user.may_administer or not reward.admin_only,
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return "\n".join(value)
    return json.dumps(value, ensure_ascii=False, default=str)
