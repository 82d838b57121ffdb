"""What an entry of the library is: parameters, words for people, and sessions, one for each episode."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workers.contract.run.episodes import ToolError
from workers.rewards.parameters import Described
from workers.rewards.reward import Cost

if TYPE_CHECKING:
    from workers.rewards.tools import Tools


_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)


class EntryKind(StrEnum):
    TOOL = "tool"
    """Functions that the model calls; it keeps nothing between calls."""
    GAME = "game"
    """Answers the model's text with an observation."""
    SERVER = "server"
    """Has tools, keeps a state, gives rewards, and may end the episode."""


@dataclass(frozen=True)
class ToolDescription:
    """A function as the chat template gets it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema of an object."""

    def as_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Result:
    """What a call answers."""

    text: str
    error: ToolError | None = None
    """Then `text` is the sentence that the model reads."""
    reward: float | None = None
    """What the environment gives for it."""
    done: bool = False
    """The episode is over."""


@dataclass(frozen=True)
class Observation:
    """What the environment says to the model's text."""

    text: str
    reward: float | None = None
    done: bool = False
    error: ToolError | None = None


class Session:
    """One episode's side of an entry. Its methods may block and may raise: the executor waits as long as the limits
    say, and turns an exception into an error that the model reads."""

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """Begin an episode on a dataset's row. Returns what is added to the last message of the prompt; "": nothing."""
        return ""

    def tools(self) -> list[ToolDescription]:
        return []

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        """Arguments have been checked against the schema. `seconds`: what is left for the call."""
        raise NotImplementedError

    def answer(self, text: str, seconds: float) -> Observation:
        """Of a game: the model's message without its thinking."""
        raise NotImplementedError

    def close(self) -> None:
        """May be called while another thread waits in a call, which then ends."""


def without_thinking(text: str) -> str:
    """What a game reads of a message."""
    before, closed, after = text.rpartition("</think>")
    return after.strip() if closed and "<think>" not in before else _THINKING.sub("", text).strip()


Open = Callable[[str, Any, "Tools"], Session]
"""(name of the part, params, tools) -> a session, not yet reset. Raises workers.rewards.tools.Unavailable."""


@dataclass(frozen=True)
class Entry(Described):
    """One entry of the library."""

    kind: EntryKind
    open: Open = field(repr=False)
    cost: Cost = Cost.PURE
    use: str = ""
    """When to use it."""
    admin_only: bool = False
    """Only an admin may put it into an environment or change it there: it holds code."""
    name_of: Callable[[Any], str] | None = field(default=None, repr=False)
    """The name that checked params give the part; None: a person chooses it."""
    package: str = ""
    """The distribution it needs in the interpreter of workers.packages; "": none."""
