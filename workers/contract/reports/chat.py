"""Chat with a served model: what reaches the program that has loaded it, and what comes back. Standard library only.

The control plane puts ChatNews into the answers to a supervisor's syncs, the supervisor appends it to FileName.CHAT as
it is, and the program answers with lines of EventKind.ANSWER.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LONGEST_CHAT = 100_000
"""Characters of all messages that one answer is asked for."""
MOST_TOKENS = 8192
"""Of one answer."""
TRAINED, BASE = "trained", "base"
"""The models of a server: the checkpoint, and the model that its training began with."""
KEY_DIGEST = "GRPO_SERVE_KEY_SHA256"
"""The program's environment variable with the SHA-256 of the key, in hex. The key itself never leaves the page."""
REQUESTS = "serve/requests"
"""The metric that counts the HTTP requests answered."""


class Finish(StrEnum):
    """Why an answer ended."""

    STOP = "stop"  # the model ended it
    LENGTH = "length"  # at the limit of tokens
    STOPPED = "stopped"  # by a person
    LEFT = "left"  # the browser went away
    ERROR = "error"


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.7
    """0: greedy."""
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0


@dataclass(frozen=True)
class Ask:
    """What one model is asked."""

    model: str
    messages: tuple[dict[str, Any], ...] = ()
    plain: str = ""
    """A text to go on with, in place of messages: a prompt of a dataset without chat."""
    tools: tuple[dict[str, Any], ...] = ()
    """Functions that the model may call, as chat templates take them."""


@dataclass(frozen=True)
class ChatTurn:
    number: int
    """Within its run, from 1."""
    asks: tuple[Ask, ...]
    sampling: Sampling


@dataclass(frozen=True)
class ChatNews:
    """A line of FileName.CHAT."""

    turns: tuple[ChatTurn, ...] = ()
    stopped: int = 0
    """Answers to turns up to this one end at once."""
    present: bool = False
    """Somebody has the chat open."""
    wanted: bool = False
    """Another run waits for what the served model holds."""
