"""The definition of a reward: a function, parameters, a range, the dataset columns it reads, and texts for people."""

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
    """A completion to be scored."""

    text: str
    """The model's last text, without tool calls."""
    turns: tuple[Mapping[str, Any], ...] = ()
    """Messages ({"role", "content", "tool_calls"}), if there is more than one text; those of an episode are in the form
    of workers.contract.run.episodes."""
    tokens: int | None = None
    """The number of tokens; None: unknown."""


def turns_of(completion: Completion) -> list[Completion]:
    """Split a completion into its turns: each message of the model with what answers it.

    A completion without messages is one turn.
    """
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
    """The library's sections."""

    FORMAT = "format"
    CORRECTNESS = "correctness"
    CODE = "code"
    SHAPE = "shape"
    TOOLS = "tools"
    MODEL = "model"
    CUSTOM = "custom"
    TRL = "trl"


class Cost(StrEnum):
    """The resources that scoring needs."""

    PURE = "pure"
    """Our Python code on text, in microseconds: runs anywhere."""
    SANDBOX = "sandbox"
    """Runs code, or a parser that can hang, in workers.sandbox."""
    HTTP = "http"
    """Sends requests to another server."""
    TRAINER = "trainer"
    """Needs torch, transformers or TRL, which only the trainer's process has."""


@dataclass(frozen=True)
class Failure:
    """The reason why a completion has no score. It counts as not applicable, never as 0."""

    index: int
    """The completion's index in its batch."""
    kind: str
    """error | timeout | memory | output | killed | wrong_length | not_a_number | unavailable | http"""
    message: str
    """One sentence for people."""
    traceback: str = ""


@dataclass(frozen=True)
class Scores:
    """The scores that one component gives a batch."""

    values: list[float | None]
    """One per completion, finite; None: the reward doesn't apply to the row, or failed on it."""
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """One per completion, such as "2 of 3 tests passed: …" or ""; empty if the reward writes none."""


@dataclass(frozen=True)
class Example:
    """A worked example on the library's page. A test scores each of them."""

    completion: str
    score: float | None
    row: Row = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    turns: tuple[Mapping[str, Any], ...] = ()
    tokens: int | None = None
    why: str = ""
    """One sentence that explains the score."""


Function = Callable[[str, Row, Any], float | None]
"""(text, row, params) -> a score, or None where the reward doesn't apply to the row."""
WholeFunction = Callable[[Completion, Row, Any], float | None]
"""The same for a whole completion, with its turns and tokens."""
BatchFunction = Callable[["Sequence[Completion]", "Sequence[Row]", Any, "Tools"], Scores]
"""(completions, rows, params, tools) -> scores: for rewards that run code, ask a server or need the trainer."""
GroupsFunction = Callable[["Sequence[Sequence[Completion]]", "Sequence[Row]", Any, "Tools"], Scores]
"""(groups of completions, the row of each, params, tools) -> scores of all completions, in order."""


@dataclass(frozen=True)
class Reward(Described):
    """One entry of the library. Exactly one of function, whole, batch and compare is set."""

    range: tuple[float, float | None] = (0.0, 1.0)
    """Lowest and highest score with the default parameters; None: no upper bound."""
    group: RewardGroup = RewardGroup.FORMAT
    """Its section, which the library sets."""
    function: Function | None = None
    whole: WholeFunction | None = None
    batch: BatchFunction | None = None
    compare: GroupsFunction | None = None
    """Scores a group's completions by comparison. It gets whole groups, even if several ranks share them."""
    per_turn: bool = True
    """True if it can score each turn of an episode separately."""
    needs: tuple[str, ...] = ()
    """Dataset columns that the reward needs."""
    cost: Cost = Cost.PURE
    low: str = ""
    high: str = ""
    """The meanings of its lowest and its highest score."""
    examples: tuple[Example, ...] = ()
    typical: tuple[float, float] | None = None
    """The usual range of scores of an unbounded reward."""
    range_of: Callable[[Any], tuple[float, float | None]] | None = None
    """Computes the range from the parameters, if they change it."""
    whole_batch: bool = False
    """True if scores may depend on the batch's other completions, so that it is never scored in parts."""

    def expected(self, params: Mapping[str, Any]) -> tuple[float, float | None]:
        """Return lowest and highest score with these parameters; None: no upper bound."""
        return self.range_of(self.build(params)) if self.range_of else self.range

    def expected_of(self, params: object) -> tuple[float, float | None]:
        """Return the same for stored parameters of any age; for invalid ones, the range of the defaults."""
        if self.range_of is None or not isinstance(params, Mapping) or self.check(params):
            return self.range
        return self.expected(params)


def waits(reward: Reward) -> bool:
    """Return whether a reward may begin before the batch is complete: it waits for a server or a sandbox, and scores
    group by group."""
    return reward.cost in (Cost.HTTP, Cost.SANDBOX) and not reward.whole_batch
