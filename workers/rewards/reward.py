"""The definition of a reward: its function, parameters, range, dataset columns and descriptions for people."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workers.rewards.parameters import Described

if TYPE_CHECKING:
    from workers.rewards.tools import Tools

Row = Mapping[str, Any]
"""A dataset row as rewards see it: row, prompt, answer, test_cases, and the dataset's other columns."""


@dataclass(frozen=True)
class Completion:
    text: str
    """The text of the model's last message, without tool calls."""
    turns: tuple[Mapping[str, Any], ...] = ()
    """Messages ({"role", "content", "tool_calls"}) if there are several; an episode's messages have the format of
    workers.contract.run.episodes."""
    tokens: int | None = None
    """The number of tokens; None if unknown."""


def turns_of(completion: Completion) -> list[Completion]:
    """Split a completion into its turns: each message of the model with the messages that follow it, up to the model's
    next one. A completion without messages is one turn."""
    if not completion.turns:
        return [completion]
    turns: list[list[Mapping[str, Any]]] = []
    for message in completion.turns:
        if message.get("role") == "assistant" or not turns:
            turns.append([])
        turns[-1].append(message)
    texts = [turn[0].get("content") for turn in turns]
    return [
        Completion(text if isinstance(text, str) else "", tuple(turn), turn[0].get("tokens"))
        for turn, text in zip(turns, texts, strict=True)
    ]


class RewardGroup(StrEnum):
    FORMAT = "format"
    CORRECTNESS = "correctness"
    CODE = "code"
    SHAPE = "shape"
    TOOLS = "tools"
    MODEL = "model"
    CUSTOM = "custom"
    TRL = "trl"


class Cost(StrEnum):
    """Resources that scoring needs."""

    PURE = "pure"
    """Only the library's own Python code on text, which takes microseconds and runs anywhere."""
    SANDBOX = "sandbox"
    """A sandbox (workers.sandbox), for code or for a parser that can hang."""
    HTTP = "http"
    TRAINER = "trainer"
    """torch, transformers or TRL, which only the trainer's process has."""


@dataclass(frozen=True)
class Failure:
    """The reason why a completion has no score. The reward is then treated as not applicable, never as 0."""

    index: int
    kind: str
    """error | timeout | memory | output | killed | wrong_length | not_a_number | unavailable | http"""
    message: str
    traceback: str = ""


@dataclass(frozen=True)
class Scores:
    """Scores of a batch from one component."""

    values: list[float | None]
    """One finite score per completion; None if the reward doesn't apply to the row or failed on it."""
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """One note per completion, such as "2 of 3 tests passed: …" or ""; empty if the reward writes no notes."""


@dataclass(frozen=True)
class Example:
    """A worked example on the library's page. A test scores each example."""

    completion: str
    score: float | None
    row: Row = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    turns: tuple[Mapping[str, Any], ...] = ()
    tokens: int | None = None
    why: str = ""


Function = Callable[[str, Row, Any], float | None]
"""A scoring function (text, row, params) -> score, or None if the reward doesn't apply to the row."""
WholeFunction = Callable[[Completion, Row, Any], float | None]
"""A scoring function like Function that gets the whole completion, with its turns and tokens."""
BatchFunction = Callable[["Sequence[Completion]", "Sequence[Row]", Any, "Tools"], Scores]
"""A scoring function (completions, rows, params, tools) -> scores, for rewards that run code, send requests to a server
or need the trainer."""
GroupsFunction = Callable[["Sequence[Sequence[Completion]]", "Sequence[Row]", Any, "Tools"], Scores]
"""A scoring function (groups of completions, one row per group, params, tools) -> scores of all completions, in
order."""


@dataclass(frozen=True)
class Reward(Described):
    """One entry of the library. Exactly one of function, whole, batch and compare is set."""

    range: tuple[float, float | None] = (0.0, 1.0)
    """Lowest and highest score with the default parameters; the highest is None if there is no upper bound."""
    group: RewardGroup = RewardGroup.FORMAT
    """The reward's section; LIBRARY sets it."""
    function: Function | None = None
    whole: WholeFunction | None = None
    batch: BatchFunction | None = None
    compare: GroupsFunction | None = None
    """Function that scores a group's completions by comparing them. It gets whole groups, even if several ranks share
    them."""
    per_turn: bool = True
    """True if the reward can score each turn of an episode separately."""
    needs: tuple[str, ...] = ()
    cost: Cost = Cost.PURE
    low: str = ""
    high: str = ""
    """The meaning of the lowest score (`low`) and of the highest (`high`)."""
    examples: tuple[Example, ...] = ()
    typical: tuple[float, float] | None = None
    """The usual range of scores of an unbounded reward."""
    range_of: Callable[[Any], tuple[float, float | None]] | None = None
    """Function that computes the range from the parameters; None if they don't change it."""
    whole_batch: bool = False
    """True if scores may depend on the batch's other completions, so the batch must not be split."""

    def expected(self, params: Mapping[str, Any]) -> tuple[float, float | None]:
        """Return the lowest and highest score with these parameters; the highest is None if it is unbounded."""
        return self.range_of(self.build(params)) if self.range_of else self.range

    def expected_of(self, params: object) -> tuple[float, float | None]:
        """Return the lowest and highest score with stored parameters, which may be outdated: if they are invalid,
        return the range with the defaults."""
        if self.range_of is None or not isinstance(params, Mapping) or self.check(params):
            return self.range
        return self.expected(params)


def waits(reward: Reward) -> bool:
    """Return whether a reward waits for a server or a sandbox and scores group by group, so scoring may begin before
    the batch is complete."""
    return reward.cost in (Cost.HTTP, Cost.SANDBOX) and not reward.whole_batch
