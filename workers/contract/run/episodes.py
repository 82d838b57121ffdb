"""Episodes: completions of several turns, in which the model calls tools, plays, or is driven by a program of its own.

An episode is a list of messages, those of the completion, after the prompt's. They are what rewards see, what
samples.jsonl holds and what the pages show:

    {"role": "assistant", "content", "tool_calls": [{"type": "function", "function": {"name", "arguments"}}],
     "tokens", "reward", "advantage"}
    {"role": "tool", "name", "content", "tokens", "seconds", "error"}
    {"role": "user", "content", "tokens", "seconds", "error", "reward"}

A turn is one message of the model with what answers it: the results of its calls, or an observation of the environment
(a user message). `tokens`: how many the message has in the completion; those of tools and observations carry no loss.
`seconds`: how long the call took. `error`: one of ToolError, or "". `reward` of an assistant's message: the turn's
(None: nothing scored it); of an observation or a result: what the environment gave for it. `advantage`: the turn's,
with the outcome's share. A key may be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workers.contract.run import corpora


class ToolError(StrEnum):
    """Why a call has no result. The model reads a sentence in its place, and the episode goes on."""

    UNREADABLE = "unreadable"
    """The model began a call, and what it wrote is none. The result has no name then."""
    UNKNOWN = "unknown"
    """There is no tool of that name."""
    ARGUMENTS = "arguments"
    """They don't fit the tool's schema."""
    RAISED = "raised"
    TIMEOUT = "timeout"
    OUTPUT = "output"
    """It answered more than can be read."""
    LIMIT = "limit"
    """More calls in one turn than are carried out."""
    UNAVAILABLE = "unavailable"
    """What it needs isn't there: a sandbox, a server, an interpreter."""


class EpisodeEnd(StrEnum):
    """How an episode ended, in addition to the ends of a single completion (eos, length, stop)."""

    DONE = "done"
    """The environment said so."""
    TURNS = "turns"
    """Its last turn called tools, and no more turns were allowed."""
    TIME = "time"
    GONE = "gone"
    """The program that drove it went away."""
    FAILED = "failed"
    """The environment broke: no step, a reward that is no number, other tools than at the start."""


UNSCORED = frozenset({EpisodeEnd.FAILED, EpisodeEnd.GONE})
"""Ends of which the model is innocent: such an episode has no reward."""


@dataclass(frozen=True)
class PartSpec:
    """A tool, or what the model plays in."""

    name: str
    """By which the model calls a tool; unique in a run."""
    function: str
    """A key in workers.environments.LIBRARY."""
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CorpusSpec:
    """A file of documents that a search reads (workers.contract.run.corpora). Fetched at the claim. A part's parameter
    names it by its title, "<name> v<version>"."""

    name: str
    version: int
    sha256: str
    documents: int

    @property
    def title(self) -> str:
        return corpora.title(self.name, self.version)


@dataclass(frozen=True)
class EpisodeLimits:
    turns: int = 6
    """Messages of the model in one episode."""
    calls: int = 4
    """Of tools in one turn."""
    output_tokens: int = 512
    """Of one result; what is longer is cut, and says so."""
    call_s: float = 20.0
    """For one call."""
    episode_s: float = 600.0
    """For one episode, the model's own time included."""
    at_once: int = 32
    """Calls that run side by side on the host."""
    count_outputs: bool = True
    """Results count against max_completion_length. Otherwise only what the model writes does."""


@dataclass(frozen=True)
class GatewaySpec:
    """Episodes are driven by programs of the user's, which ask an OpenAI-compatible endpoint of the run."""

    kind: str = "agents"
    """`agents`: each takes a task and ends its session | `atropos`: its environments, which bring their own tasks."""
    session_s: float = 600.0
    """From taking a task to its end, before the session counts as gone."""
    open_beyond_loopback: bool = False
    """Listen on every address of the host; a key is asked for in any case."""
    shows_answer: bool = False
    """A task also has the row's answer and tests. Otherwise agents get its prompt and its other columns."""
    max_token_len: int = 2048
    """Told to Atropos: prompt and completion together."""
    requests: int = 0
    """Of Atropos' environments that are answered within `interval_s`, the others wait; 0: no limit."""
    interval_s: float = 10.0


@dataclass(frozen=True)
class EpisodeSpec:
    """What makes episodes of completions; None in a run: each is one turn."""

    name: str = ""
    """Of the environment, as the pages show it."""
    version: int = 0
    parts: tuple[PartSpec, ...] = ()
    """Tools, and at most one that is played in."""
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    corpora: tuple[CorpusSpec, ...] = ()
    turn_advantage_coef: float = 1.0
    """The weight of a turn's own advantage beside the outcome's (workers.trainer.episodes.credit)."""
    chat_template: str = ""
    """One of TRL's templates by name, in place of a model's own that can't show tools; "": the model's."""
    gateway: GatewaySpec | None = None


TURNS_MEAN, TURNS_MAX = "episodes/turns/mean", "episodes/turns/max"
CUT = "episodes/cut"
"""Share of episodes ended by a limit: of turns, time or length."""
FAILED = "episodes/failed"
"""Share of episodes whose environment broke; they have no reward."""
TOOL_SHARE = "episodes/tool_share"
"""Share of the episodes' tokens that the model didn't write."""
SECONDS_P95 = "episodes/seconds/p95"
CALLS, FAILURES = "tools/call_frequency", "tools/failure_frequency"
"""TRL's names: calls an episode, and the share of calls that failed."""
MOST_TURNS_CHARTED = 8


def tool_metric(name: str, what: str) -> str:
    """`what`: calls (an episode) | failed (share of its calls) | p50_s | p95_s (of a call, in seconds)."""
    return f"tools/{name}/{what}"


def turn_reward(number: int) -> str:
    """Mean reward of the episodes' turn `number`, from 1."""
    return f"turns/{number}/reward"
