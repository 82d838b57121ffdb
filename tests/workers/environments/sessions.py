"""Entries of a library for tests: one part that does what a test says, in each of its methods."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workers.contract.run.episodes import EpisodeLimits, PartSpec
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.environments.executor import Executor
from workers.rewards.parameters import Params

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


@dataclass
class Scripted(EpisodeSession):
    """`does`: of a call, with the word. `says`: of a text."""

    name: str
    does: Callable[[str], Any] = lambda word: Result(word.upper())
    says: Callable[[str], Any] = lambda text: Result(f"You said {text}.")
    starts: Callable[[Mapping[str, Any], int], str] = lambda row, seed: ""
    names: Sequence[str] | None = None
    closed: threading.Event = field(default_factory=threading.Event)

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        return self.starts(row, seed)

    def tools(self) -> list[ToolDescription]:
        return [ToolDescription(name, "Shout a word.", SCHEMA) for name in self.names or [self.name]]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        return self.does(arguments["word"])

    def answer(self, text: str, seconds: float) -> Result:
        return self.says(text)

    def close(self) -> None:
        self.closed.set()


def entry(make: Callable[[str], EpisodeSession], kind: EntryKind = EntryKind.TOOL) -> Entry:
    return Entry("scripted", "Scripted", "", Params, kind=kind, open=lambda name, params, tools: make(name))


def executor(
    make: Callable[[str], EpisodeSession],
    kind: EntryKind = EntryKind.TOOL,
    *,
    names: Sequence[str] = ("shout",),
    **limits: Any,
) -> Executor:
    parts = [PartSpec(name, "scripted") for name in names]
    library = {"scripted": entry(make, kind)}
    return Executor(parts, EpisodeLimits(**limits), None, library=library)  # type: ignore[arg-type]
