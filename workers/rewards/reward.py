"""What a reward is: a function, a parameter schema, a range, the dataset columns it reads, and words for people."""

from __future__ import annotations

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

if typing.TYPE_CHECKING:
    from workers.rewards.tools import Tools

LONGEST_TEXT_PARAM = 200
"""Markers and tag names; a longer one is a mistake in the form. A field may set another `longest`."""

Row = Mapping[str, Any]
"""A dataset row as rewards see it: row, prompt, answer, test_cases, and what else the dataset tells."""


@dataclass(frozen=True)
class Completion:
    """What the model wrote."""

    text: str
    """The last text of it, without tool calls."""
    turns: tuple[Mapping[str, Any], ...] = ()
    """Its messages ({"role", "content", "tool_calls"}), where there was more than one text."""
    tokens: int | None = None
    """How many tokens it has; None where nobody counted."""


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
class Params:
    """Base of every reward's parameters. A field's metadata holds help, and min, max, choices, longest or widget.

    A `problem()` method may say what is wrong with the values taken together, as "field: what".
    """


ParamsT = typing.TypeVar("ParamsT", bound=Params)


def param(default: Any, text: str, **limits: Any) -> Any:
    """A parameter field with its help text; `limits` are min and max for numbers, choices and longest for text, and
    widget ("code", "json", "pattern", "text", "secret") for how a form shows it."""
    return dataclasses.field(default=default, metadata={"help": text, **limits})


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


@dataclass(frozen=True)
class Reward:
    """One entry of the library. Exactly one of function, whole and batch is set."""

    key: str
    title: str
    help: str
    """One sentence."""
    params: type[Params]
    range: tuple[float, float | None]
    """Lowest and highest score with the default parameters; None: no upper bound."""
    group: RewardGroup = RewardGroup.FORMAT
    function: Function | None = None
    whole: WholeFunction | None = None
    batch: BatchFunction | None = None
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
    admin_only: bool = False
    """Only an admin may put it into a config or change it there."""

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        return typing.get_type_hints(self.params)  # evaluates text: too slow for every batch

    def schema(self) -> list[dict[str, Any]]:
        """The parameters as plain data for forms: name, type, default, help, and choices, min, max, longest, widget
        (None: none)."""
        hints = self._types
        return [
            {
                "name": f.name,
                "type": hints[f.name].__name__,
                "default": f.default,
                "help": f.metadata["help"],
                "choices": list(f.metadata["choices"]) if "choices" in f.metadata else None,
                "min": f.metadata.get("min"),
                "max": f.metadata.get("max"),
                "longest": f.metadata.get("longest", LONGEST_TEXT_PARAM),
                "widget": f.metadata.get("widget"),
            }
            for f in dataclasses.fields(self.params)
        ]

    def defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in dataclasses.fields(self.params)}

    def check(self, params: Mapping[str, Any]) -> list[str]:
        """What is wrong with these parameters, one sentence each, "name: what"; empty when they can be used."""
        known = {entry["name"]: entry for entry in self.schema()}
        there = f"it has {', '.join(known)}" if known else "it has none"
        errors = [f"{name}: {self.title} has no such parameter; {there}" for name in params if name not in known]
        for name, value in params.items():
            if name in known and (problem := _problem(known[name], value)):
                errors.append(f"{name}: {problem}")
        if not errors and (extra := getattr(self.params, "problem", None)):
            whole: str | None = extra(self.build(params))
            errors += [whole] if whole else []
        return errors

    def build(self, params: Mapping[str, Any]) -> Params:
        """The typed parameters. Call check first: this trusts the values."""
        hints = self._types
        return self.params(**{name: hints[name](value) for name, value in params.items()})

    def expected(self, params: Mapping[str, Any]) -> tuple[float, float | None]:
        """Lowest and highest score with these parameters; None: no upper bound."""
        return self.range_of(self.build(params)) if self.range_of else self.range

    def expected_of(self, params: object) -> tuple[float, float | None]:
        """The same of parameters as they are stored, of whatever age: with its defaults where they don't fit."""
        if self.range_of is None or not isinstance(params, Mapping) or self.check(params):
            return self.range
        return self.expected(params)


def _problem(entry: Mapping[str, Any], value: Any) -> str | None:
    """Why `value` doesn't fit one entry of a schema."""
    if entry["type"] == "bool":
        return None if isinstance(value, bool) else f"must be true or false, not {_shown(value)}"
    if entry["type"] == "str":
        return _text_problem(entry, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, not {_shown(value)}"
    if not math.isfinite(value):
        return "must be a finite number"
    if entry["type"] == "int" and value != int(value):
        return f"must be a whole number, not {_shown(value)}"
    if entry["min"] is not None and value < entry["min"]:
        return f"must be at least {entry['min']}"
    if entry["max"] is not None and value > entry["max"]:
        return f"must be at most {entry['max']}"
    return None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _text_problem(entry: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be text, not {_shown(value)}"
    if entry["choices"] is not None and value not in entry["choices"]:
        return f"must be one of {', '.join(entry['choices'])}"
    if len(value) > entry["longest"]:
        return f"must be at most {entry['longest']} characters"
    return None
