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

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from workers.contract.run import corpora


class ToolError(StrEnum):
    """Reasons for a call without a result. The model reads a sentence in its place, and the episode continues."""

    UNREADABLE = "unreadable"
    """The model began a call and wrote something that can't be parsed. The result then has no name."""
    UNKNOWN = "unknown"
    """There is no tool of that name."""
    ARGUMENTS = "arguments"
    """The arguments don't fit the tool's schema."""
    RAISED = "raised"
    TIMEOUT = "timeout"
    OUTPUT = "output"
    """The tool's answer is too long to be read."""
    LIMIT = "limit"
    """The turn has more calls than the limit."""
    UNAVAILABLE = "unavailable"
    """Something that the tool needs is missing: a sandbox, a server, an interpreter."""


class EpisodeEnd(StrEnum):
    """Ends of an episode, in addition to those of a single completion (eos, length, stop)."""

    DONE = "done"
    """The environment ended it."""
    TURNS = "turns"
    """Its last turn called tools, and no more turns were allowed."""
    TIME = "time"
    GONE = "gone"
    """The program that drove it went away."""
    FAILED = "failed"
    """The environment broke: no step, a reward that is no number, other tools than at the start."""


UNSCORED = frozenset({EpisodeEnd.FAILED, EpisodeEnd.GONE})
"""Ends that aren't the model's fault: such an episode has no reward."""


@dataclass(frozen=True)
class PartSpec:
    """A tool, or a game that the model plays."""

    name: str
    """The name by which the model calls a tool; unique in a run."""
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
    """Tool calls in one turn."""
    output_tokens: int = 512
    """Tokens of one result; longer ones are cut, with a note that says so."""
    call_s: float = 20.0
    episode_s: float = 600.0
    """Seconds for one episode, including the model's own time."""
    at_once: int = 32
    """Calls that run at the same time on the host."""
    count_outputs: bool = True
    """True: results count against max_completion_length; False: only the model's own tokens do."""


@dataclass(frozen=True)
class GatewaySpec:
    """Episodes driven by the user's own programs, which call an OpenAI-compatible endpoint of the run."""

    kind: str = "agents"
    """`agents`: each takes a task and ends its session | `atropos`: its environments, which bring their own tasks."""
    session_s: float = 600.0
    """Seconds that a task may take before its session counts as gone."""
    open_beyond_loopback: bool = False
    """Listen on every address of the host; a key is required in any case."""
    shows_answer: bool = False
    """True: tasks include the row's answer and tests; False: only its prompt and other columns."""
    max_token_len: int = 2048
    """Token limit sent to Atropos, for prompt and completion together."""
    requests: int = 0
    """Limit of requests from Atropos' environments per `interval_s`; further ones wait. 0: no limit."""
    interval_s: float = 10.0


@dataclass(frozen=True)
class EpisodeSpec:
    """The environment and limits of a run's episodes; None in a run: each completion is one turn."""

    name: str = ""
    """The environment's name, as pages show it."""
    version: int = 0
    parts: tuple[PartSpec, ...] = ()
    """Tools, and at most one game."""
    limits: EpisodeLimits = field(default_factory=EpisodeLimits)
    corpora: tuple[CorpusSpec, ...] = ()
    turn_advantage_coef: float = 1.0
    """Weight of a turn's own advantage, relative to the outcome's (workers.trainer.episodes.credit)."""
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
"""TRL's metrics: calls per episode, and the share of calls that failed."""
MAX_TURNS_CHARTED = 8


def tool_metric(name: str, figure: str) -> str:
    """Name a metric of a tool. `figure`: calls (per episode) | failed (share of its calls) | p50_s | p95_s (of a call,
    in seconds)."""
    return f"tools/{name}/{figure}"


def turn_reward(number: int) -> str:
    """Name the metric of the mean reward of the episodes' turn `number`, from 1."""
    return f"turns/{number}/reward"
