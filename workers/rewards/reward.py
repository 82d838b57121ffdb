"""What a reward is: a pure function, a parameter schema, a range, and the dataset columns it reads."""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LONGEST_TEXT_PARAM = 200
"""Markers and tag names; a longer one is a mistake in the form."""


@dataclass(frozen=True)
class Params:
    """Base of every reward's parameters. A field's metadata holds help, and min, max or choices."""


ParamsT = typing.TypeVar("ParamsT", bound=Params)


def param(default: Any, text: str, **limits: Any) -> Any:
    """A parameter field with its help text; `limits` are min and max for numbers, choices for text."""
    return dataclasses.field(default=default, metadata={"help": text, **limits})


@dataclass(frozen=True)
class Reward:
    """One entry of the library."""

    key: str
    title: str
    help: str
    function: Callable[[str, Mapping[str, Any], Any], float | None]
    """(completion, row, params) -> a score, or None where the reward doesn't apply to the row."""
    params: type[Params]
    range: tuple[float, float | None]
    """Lowest and highest score; None: no upper bound."""
    needs: tuple[str, ...] = ()
    """Dataset columns without which the reward can't say anything."""

    def schema(self) -> list[dict[str, Any]]:
        """The parameters as plain data for forms: name, type, default, help, and choices, min, max (None: none)."""
        hints = typing.get_type_hints(self.params)
        return [
            {
                "name": f.name,
                "type": hints[f.name].__name__,
                "default": f.default,
                "help": f.metadata["help"],
                "choices": list(f.metadata["choices"]) if "choices" in f.metadata else None,
                "min": f.metadata.get("min"),
                "max": f.metadata.get("max"),
            }
            for f in dataclasses.fields(self.params)
        ]

    def defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in dataclasses.fields(self.params)}

    def check(self, params: Mapping[str, Any]) -> list[str]:
        """What is wrong with these parameters, one sentence each; empty when they can be used."""
        known = {entry["name"]: entry for entry in self.schema()}
        errors = [f"{name}: {self.key} has no such parameter" for name in params if name not in known]
        for name, value in params.items():
            if name in known and (problem := _problem(known[name], value)):
                errors.append(f"{name}: {problem}")
        if not errors and (extra := getattr(self.params, "problem", None)):
            whole: str | None = extra(self.build(params))
            errors += [whole] if whole else []
        return errors

    def build(self, params: Mapping[str, Any]) -> Params:
        """The typed parameters. Call check first: this trusts the values."""
        hints = typing.get_type_hints(self.params)
        return self.params(**{name: hints[name](value) for name, value in params.items()})

    def score(self, completion: str, row: Mapping[str, Any], params: Mapping[str, Any]) -> float | None:
        return self.function(completion, row, self.build(params))

    def score_batch(
        self, completions: Sequence[str], rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any]
    ) -> list[float | None]:
        """One score a completion; rows[i] is the dataset row that completions[i] answers."""
        built = self.build(params)
        return [self.function(text, row, built) for text, row in zip(completions, rows, strict=True)]


def _problem(entry: Mapping[str, Any], value: Any) -> str | None:
    """Why `value` doesn't fit one entry of a schema."""
    if entry["type"] == "bool":
        return None if isinstance(value, bool) else f"must be true or false, not {value!r}"
    if entry["type"] == "str":
        return _text_problem(entry, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, not {value!r}"
    if not math.isfinite(value):
        return "must be a finite number"
    if entry["type"] == "int" and value != int(value):
        return f"must be a whole number, not {value!r}"
    if entry["min"] is not None and value < entry["min"]:
        return f"must be at least {entry['min']}"
    if entry["max"] is not None and value > entry["max"]:
        return f"must be at most {entry['max']}"
    return None


def _text_problem(entry: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be text, not {value!r}"
    if entry["choices"] is not None and value not in entry["choices"]:
        return f"must be one of {', '.join(entry['choices'])}"
    if len(value) > LONGEST_TEXT_PARAM:
        return f"must be at most {LONGEST_TEXT_PARAM} characters"
    return None
