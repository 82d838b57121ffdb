"""Episodes: completions of several turns, in which the model calls tools, plays, or is driven by another program.

An episode is a list of messages, those of the completion, after the prompt's. They are what rewards see, what
samples.jsonl holds and what the pages show:

    {"role": "assistant", "content", "tool_calls": [{"type": "function", "function": {"name", "arguments"}}],
     "tokens", "reward", "advantage"}
    {"role": "tool", "name", "content", "tokens", "seconds", "error"}
    {"role": "user", "content", "tokens", "seconds", "error", "reward"}

A turn is one message of the model and the response to it: the results of its calls, or an observation of the
environment (a user message). `tokens` is the number of the message's tokens in the completion; those of tools and
observations carry no loss. `seconds` is the duration of the call, and `error` one of ToolError or "". The `reward` of
an assistant's message is the turn's (None if nothing scored it); that of an observation or a result is what the
environment gave for it. `advantage` is the turn's, including the outcome's share. A key may be missing.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workers.contract.run import corpora


class ToolError(StrEnum):
    """Reasons why a call has no result. The model reads a sentence in its place, and the episode continues."""

    UNREADABLE = "unreadable"
    """The model began a call and wrote something that can't be parsed. The result then has no name."""
    UNKNOWN = "unknown"
    ARGUMENTS = "arguments"
    RAISED = "raised"
    TIMEOUT = "timeout"
    OUTPUT = "output"
    LIMIT = "limit"
    UNAVAILABLE = "unavailable"
    """Something that the tool needs is missing: a sandbox, a server, an interpreter."""


class EpisodeEnd(StrEnum):
    """Reasons why an episode ended, in addition to the ends of a single completion (eos, length, stop)."""

    DONE = "done"
    TURNS = "turns"
    """The last turn called tools, and no more turns were allowed."""
    TIME = "time"
    GONE = "gone"
    """The program that drove the episode went away."""
    FAILED = "failed"
    """The environment broke: its step failed, its reward isn't a number, or its tools have changed."""


UNSCORED_ENDS = frozenset({EpisodeEnd.FAILED, EpisodeEnd.GONE})
"""Ends that aren't the model's fault, so that the episode has no reward."""


@dataclass(frozen=True)
class PartSpec:
    """A tool, or a game that the model plays."""

    name: str
    """The name by which the model calls a tool; unique in a run."""
    function: str
    """Key in workers.environments.LIBRARY."""
    params: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CorpusSpec:
    """A file of documents that a search reads (workers.contract.run.corpora), fetched at the claim. A part's parameter
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
    calls: int = 4
    output_tokens: int = 512
    """Maximum number of tokens of one result; longer ones are truncated, with a note that says so."""
    call_s: float = 20.0
    episode_s: float = 600.0
    """Maximum seconds for one episode, including generation."""
    at_once: int = 32
    """Maximum number of calls that run at the same time on the host."""
    count_outputs: bool = True
    """True if results count against max_completion_length, as the model's own tokens do."""


@dataclass(frozen=True)
class GatewaySpec:
    """Episodes driven by the user's own programs, which call an OpenAI-compatible endpoint of the run."""

    kind: str = "agents"
    """`agents`, which each take a task and end its session, or `atropos`, whose environments bring their own tasks."""
    session_s: float = 600.0
    """Seconds that a task may take before its session is considered gone."""
    open_beyond_loopback: bool = False
    """True to listen on every address of the host; a key is required in any case."""
    shows_answer: bool = False
    """True if tasks include the row's answer and tests in addition to its prompt and other columns."""
    max_token_len: int = 2048
    """Token limit sent to Atropos, for prompt and completion together."""
    requests: int = 0
    """Maximum number of requests from Atropos' environments per `interval_s`; any others wait. 0 for no limit."""
    interval_s: float = 10.0


@dataclass(frozen=True)
class EpisodeSpec:
    """The environment and limits of a run's episodes; a run without them has completions of one turn."""

    name: str = ""
    version: int = 0
    parts: tuple[PartSpec, ...] = ()
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    corpora: tuple[CorpusSpec, ...] = ()
    turn_advantage_coef: float = 1.0
    """Weight of a turn's advantage, relative to the outcome's (workers.trainer.episodes.credit)."""
    chat_template: str = ""
    """Name of a TRL template to use instead of the model's own, which may not render tools; "" to use the model's
    own."""
    gateway: GatewaySpec | None = None


TURNS_MEAN, TURNS_MAX = "episodes/turns/mean", "episodes/turns/max"
EPISODES_CUT = "episodes/cut"
"""Share of episodes ended by a limit: of turns, time or length."""
FAILED = "episodes/failed"
"""Share of episodes whose environment broke; they have no reward."""
TOOL_SHARE = "episodes/tool_share"
"""Share of the episodes' tokens that the model didn't write."""
SECONDS_P95 = "episodes/seconds/p95"
CALLS, FAILURES = "tools/call_frequency", "tools/failure_frequency"
"""TRL's metrics: calls per episode, and the share of calls that failed."""
MAX_TURNS_CHARTED = 8


def tool_metric(name: str, measure: str) -> str:
    """Return the name of a tool's metric. `measure` is calls (per episode), failed (share of its calls), p50_s or p95_s
    (seconds of a call)."""
    return f"tools/{name}/{measure}"


def turn_reward(number: int) -> str:
    """Return the name of the metric with the mean reward of turn `number`, from 1."""
    return f"turns/{number}/reward"
