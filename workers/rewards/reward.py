"""What a reward is: a function, a parameter schema, a range, the dataset columns it reads, and words for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from workers.rewards.parameters import Described

if TYPE_CHECKING:
    from workers.rewards.tools import Tools

Row = Mapping[str, Any]
"""A dataset row as rewards see it: row, prompt, answer, test_cases, and what else the dataset tells."""


@dataclass(frozen=True)
class Completion:
    """What the model wrote."""

    text: str
    """The last text of it, without tool calls."""
    turns: tuple[Mapping[str, Any], ...] = ()
    """Its messages ({"role", "content", "tool_calls"}), where there was more than one text; those of an episode as
    workers.contract.run.episodes describes them."""
    tokens: int | None = None
    """How many tokens it has; None where nobody counted."""


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
    """Where a reward stands in the library."""

    FORMAT = "format"
    CORRECTNESS = "correctness"
    CODE = "code"
    SHAPE = "shape"
    TOOLS = "tools"
    MODEL = "model"
    CUSTOM = "custom"
    TRL = "trl"


class Cost(StrEnum):
    """What scoring takes."""

    PURE = "pure"
    """Python of ours on text, microseconds: runs anywhere."""
    SANDBOX = "sandbox"
    """Runs code, or a parser that can hang, in workers.sandbox."""
    HTTP = "http"
    """Asks another server."""
    TRAINER = "trainer"
    """Needs what only the trainer's process has: torch, transformers, TRL."""


@dataclass(frozen=True)
class Failure:
    """Why one completion got no score. It counts as not applicable, never as 0."""

    index: int
    """Of the completion in its batch."""
    kind: str
    """error | timeout | memory | output | killed | wrong_length | not_a_number | unavailable | http"""
    message: str
    """One sentence for people."""
    traceback: str = ""


@dataclass(frozen=True)
class Scores:
    """What one component gave a batch."""

    values: list[float | None]
    """One a completion, finite; None: the reward doesn't apply to the row, or failed on it."""
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """One a completion where there is something to tell ("2 of 3 tests passed: …"), else empty."""


@dataclass(frozen=True)
class Example:
    """A worked example, as the library's page shows it. A test scores every one."""

    completion: str
    score: float | None
    row: Row = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    turns: tuple[Mapping[str, Any], ...] = ()
    tokens: int | None = None
    why: str = ""
    """One sentence: why this score."""


Function = Callable[[str, Row, Any], float | None]
"""(text, row, params) -> a score, or None where the reward doesn't apply to the row."""
WholeFunction = Callable[[Completion, Row, Any], float | None]
"""As Function, of a whole completion: its turns and tokens too."""
BatchFunction = Callable[["Sequence[Completion]", "Sequence[Row]", Any, "Tools"], Scores]
"""(completions, rows, params, tools) -> scores: for rewards that run code, ask a server or need the trainer."""
GroupsFunction = Callable[["Sequence[Sequence[Completion]]", "Sequence[Row]", Any, "Tools"], Scores]
"""(groups of completions, the row of each, params, tools) -> scores of all completions, in order."""


@dataclass(frozen=True)
class Reward(Described):
    """One entry of the library. Exactly one of function, whole, batch and compare is set."""

    range: tuple[float, float | None]
    """Lowest and highest score with the default parameters; None: no upper bound."""
    group: RewardGroup = RewardGroup.FORMAT
    function: Function | None = None
    whole: WholeFunction | None = None
    batch: BatchFunction | None = None
    compare: GroupsFunction | None = None
    """Scores the completions of a group by each other. It gets whole groups, on however many ranks they are."""
    per_turn: bool = True
    """It can score each turn of an episode by itself."""
    needs: tuple[str, ...] = ()
    """Dataset columns without which the reward can't say anything."""
    cost: Cost = Cost.PURE
    low: str = ""
    """What its lowest score means."""
    high: str = ""
    """What its highest score means."""
    use: str = ""
    """When to use it."""
    examples: tuple[Example, ...] = ()
    typical: tuple[float, float] | None = None
    """Of an unbounded one: between which scores usual completions lie."""
    range_of: Callable[[Any], tuple[float, float | None]] | None = None
    """The range with given parameters, where they change it."""
    whole_batch: bool = False
    """Its scores may depend on the other completions of the batch, so that it is never scored in parts."""
    admin_only: bool = False
    """Only an admin may put it into a config or change it there."""
    package: str = ""
    """The distribution it needs in the interpreter of workers.packages; "": none."""

    def expected(self, params: Mapping[str, Any]) -> tuple[float, float | None]:
        """Lowest and highest score with these parameters; None: no upper bound."""
        return self.range_of(self.build(params)) if self.range_of else self.range

    def expected_of(self, params: object) -> tuple[float, float | None]:
        """The same of parameters as they are stored, of whatever age: with its defaults where they don't fit."""
        if self.range_of is None or not isinstance(params, Mapping) or self.check(params):
            return self.range
        return self.expected(params)


def waits(reward: Reward) -> bool:
    """Whether it waits for something beside this process, a server or a sandbox, and can score group by group: it may
    begin before the batch is complete."""
    return reward.cost in (Cost.HTTP, Cost.SANDBOX) and not reward.whole_batch
