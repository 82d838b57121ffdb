"""Definition of library entries: their parameters, descriptions for people, and sessions, one per episode."""

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
    """Functions that the model calls, without state between calls."""
    GAME = "game"
    """Replies to the model's text."""
    SERVER = "server"
    """Tools with state, which give rewards and may end the episode."""


@dataclass(frozen=True)
class ToolDescription:
    """A function as described to chat templates."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""

    @classmethod
    def of_text(cls, name: str, description: str, argument: str, about: str) -> "ToolDescription":
        """Describe a function with one string argument."""
        properties = {argument: {"type": "string", "description": about}}
        return cls(name, description, {"type": "object", "properties": properties, "required": [argument]})

    def as_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Result:
    """Result of a call, or a game's reply to the model's text."""

    text: str
    """Text for the model, which explains the error if there is one."""
    error: ToolError | None = None
    reward: float | None = None
    """Reward from the environment for the call or the move."""
    done: bool = False


class EpisodeSession:
    """An entry's session for one episode. Methods may block and may raise: the executor waits up to the limits, and
    reports an exception to the model as an error."""

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """Begin an episode with a dataset's row, and return text to append to the prompt's last message, or ""."""
        return ""

    def tools(self) -> list[ToolDescription]:
        return []

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        """Call a tool with arguments that fit its schema. `seconds`: time limit of the call."""
        raise NotImplementedError

    def answer(self, text: str, seconds: float) -> Result:
        """Reply to the model's message in a game. `text`: the message without its thinking."""
        raise NotImplementedError

    def close(self) -> None:
        """End the session, including calls in other threads."""


def without_thinking(text: str) -> str:
    """Return a message without its thinking, as games get it."""
    before, closed, after = text.rpartition("</think>")
    return after.strip() if closed and "<think>" not in before else _THINKING.sub("", text).strip()


Open = Callable[[str, Any, "Tools"], EpisodeSession]
"""Function that takes a part's name, its params and the tools, and opens a session, or raises Unavailable if that is
impossible here."""


@dataclass(frozen=True)
class Entry(Described):
    kind: EntryKind
    open: Open = field(repr=False)
    cost: Cost = Cost.PURE
    name_of: Callable[[Any], str] | None = field(default=None, repr=False)
    """Function that derives the part's name from valid params; None if people choose the name."""
