"""Chat with a served model: its questions, answers and limits. Standard library only.

The control plane puts ChatNews into its responses to a supervisor's syncs, the supervisor appends it to FileName.CHAT
unchanged, and the program answers with lines of EventKind.ANSWER.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_CHAT_LENGTH = 100_000
MAX_TOKENS = 8192
TRAINED, BASE = "trained", "base"
"""The models of a server: the checkpoint, and the model from which its training started."""
KEY_DIGEST = "GRPO_SERVE_KEY_SHA256"
"""Environment variable that gives the program the SHA-256 of the key, in hex, in place of the key itself."""
REQUESTS = "serve/requests"


class Finish(StrEnum):
    STOP = "stop"  # the model ended it
    LENGTH = "length"  # at the limit of tokens
    STOPPED = "stopped"  # by a person
    LEFT = "left"  # the browser went away
    ERROR = "error"


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.7
    """Sampling temperature; 0 samples greedily."""
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0


@dataclass(frozen=True)
class Ask:
    model: str
    messages: tuple[dict[str, Any], ...] = ()
    plain: str = ""
    """A string to continue, in place of messages: a prompt of a dataset without chat."""
    tools: tuple[dict[str, Any], ...] = ()
    """Functions that the model may call, in the format that chat templates take."""


@dataclass(frozen=True)
class ChatTurn:
    number: int
    """The question's number within its run, from 1."""
    asks: tuple[Ask, ...]
    sampling: Sampling


@dataclass(frozen=True)
class ChatNews:
    """A line of FileName.CHAT."""

    turns: tuple[ChatTurn, ...] = ()
    stopped: int = 0
    """Number of the question up to which all answers are ended at once."""
    present: bool = False
    wanted: bool = False
    """True while another run waits for the GPUs of the served model."""
