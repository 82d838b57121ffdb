"""The definition of a library entry: parameters, texts for people, and sessions, one per episode."""

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
    """Functions that the model calls; keeps no state between calls."""
    GAME = "game"
    """Answers the model's text."""
    SERVER = "server"
    """Has tools and state, gives rewards, and may end the episode."""


@dataclass(frozen=True)
class ToolDescription:
    """A function in the form that chat templates get."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """A JSON Schema of an object."""

    @classmethod
    def of_text(cls, name: str, description: str, argument: str, about: str) -> "ToolDescription":
        """Describe a function with a text as its only argument."""
        properties = {argument: {"type": "string", "description": about}}
        return cls(name, description, {"type": "object", "properties": properties, "required": [argument]})

    def as_dict(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Result:
    """The answer to a call, or a game's answer to the model's text."""

    text: str
    """The text for the model; in case of an error, a sentence about it."""
    error: ToolError | None = None
    reward: float | None = None
    """The environment's reward for the call or the move."""
    done: bool = False
    """The episode is over."""


class EpisodeSession:
    """One episode in an entry. Methods may block and may raise: the executor waits up to the limits, and turns an
    exception into an error for the model."""

    def reset(self, row: Mapping[str, Any], seed: int) -> str:
        """Begin an episode with a dataset's row. Return text to append to the prompt's last message, or ""."""
        return ""

    def tools(self) -> list[ToolDescription]:
        return []

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        """Call a tool with arguments that fit its schema. `seconds`: time left for the call."""
        raise NotImplementedError

    def answer(self, text: str, seconds: float) -> Result:
        """Answer the model's message in a game. `text`: without its thinking."""
        raise NotImplementedError

    def close(self) -> None:
        """End the session, and with it calls in other threads."""


def without_thinking(text: str) -> str:
    """Return a message without its thinking, as games get it."""
    before, closed, after = text.rpartition("</think>")
    return after.strip() if closed and "<think>" not in before else _THINKING.sub("", text).strip()


Open = Callable[[str, Any, "Tools"], EpisodeSession]
"""(name of the part, params, tools) -> a session, not yet reset. Raises workers.rewards.tools.Unavailable."""


@dataclass(frozen=True)
class Entry(Described):
    """One entry of the library."""

    kind: EntryKind
    open: Open = field(repr=False)
    cost: Cost = Cost.PURE
    name_of: Callable[[Any], str] | None = field(default=None, repr=False)
    """Returns the part's name from checked params; None: people choose it."""
