"""Parameters of library entries: typed fields with help and limits, shown in forms and stored in specs."""

import dataclasses
import functools
import re
import sys
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MAX_TEXT_PARAM_LENGTH = 200
"""Maximum number of characters of a string parameter whose field doesn't set `longest`."""


@dataclass(frozen=True)
class Params:
    """Base class of every reward's parameters."""

    def problem(self) -> str | None:
        """Return the first problem of the values as "field: message", or None if they can be used. Subclasses also
        check values against each other."""
        for f in dataclasses.fields(self):
            if "rule" in f.metadata and (message := f.metadata["rule"](getattr(self, f.name))):
                return f"{f.name}: {message}"
        return None


ParamsT = typing.TypeVar("ParamsT", bound=Params)


def param(default: Any, help_text: str, **limits: Any) -> Any:
    """Declare a parameter with its help text.

    `limits` may hold min and max for numbers, choices and longest for strings, rule (a function that returns a value's
    problem, or something falsy if there is none), and the form's widget ("code", "json", "pattern", "text", "secret" or
    "corpus").
    """
    return dataclasses.field(default=default, metadata={"help": help_text, **limits})


def server_param() -> Any:
    """Declare a parameter that names a server defined on the Secrets page."""
    return param(
        "",
        "Name of the server on the Secrets page, which stores its address and key.",
        widget="secret",
        longest=40,
        rule=lambda name: not re.fullmatch(r"[A-Z0-9_]{1,40}", name) and "choose a server from the Secrets page",
    )


@dataclass(frozen=True)
class Described:
    """A library entry: its key, its descriptions for people, and its parameters."""

    key: str
    title: str
    help: str
    params: type[Params]
    _: dataclasses.KW_ONLY
    use: str = ""
    admin_only: bool = False
    """True if only admins may add the entry to a config or an environment, or change it there."""
    package: str = ""
    """The distribution that the entry needs in the interpreter of workers.packages; "" if it needs none."""

    @functools.cached_property
    def _types(self) -> dict[str, Any]:
        return typing.get_type_hints(self.params)  # evaluates text: too slow for every batch

    def schema(self) -> list[dict[str, Any]]:
        """Return the parameters as plain data for forms: name, type, default, help, limits and widget."""
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
                "longest": f.metadata.get("longest", MAX_TEXT_PARAM_LENGTH),
                "widget": f.metadata.get("widget"),
            }
            for f in dataclasses.fields(self.params)
        ]

    def defaults(self) -> dict[str, Any]:
        return {f.name: f.default for f in dataclasses.fields(self.params)}

    def check(self, params: Mapping[str, Any]) -> list[str]:
        """Return the problems of these parameters, each as "name: message"; an empty list if they can be used."""
        entries = {entry["name"]: entry for entry in self.schema()}
        available = f"its parameters are {', '.join(entries)}" if entries else "it has none"
        errors = [f"{name}: {self.title} has no such parameter; {available}" for name in params if name not in entries]
        for name, value in params.items():
            if name in entries and (problem := _problem(entries[name], value)):
                errors.append(f"{name}: {problem}")
        if not errors and (conflict := self.build(params).problem()):
            errors.append(conflict)
        return errors

    def build(self, params: Mapping[str, Any]) -> Params:
        """Return the parameters with their types. Call `check` first: this function trusts the values."""
        hints = self._types
        return self.params(**{name: hints[name](value) for name, value in params.items()})


def is_finite(value: int | float) -> bool:
    """Return whether a float can hold a number. `math.isfinite` raises for an integer with 400 digits."""
    return abs(value) <= sys.float_info.max


def _problem(entry: Mapping[str, Any], value: Any) -> str | None:
    if entry["type"] == "bool":
        return None if isinstance(value, bool) else f"must be true or false, not {_quote(value)}"
    if entry["type"] == "str":
        return _text_problem(entry, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"must be a number, not {_quote(value)}"
    if not is_finite(value):
        return "must be a finite number"
    if entry["type"] == "int" and value != int(value):
        return f"must be a whole number, not {_quote(value)}"
    if entry["min"] is not None and value < entry["min"]:
        return f"must be at least {entry['min']}"
    if entry["max"] is not None and value > entry["max"]:
        return f"must be at most {entry['max']}"
    return None


def _quote(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _text_problem(entry: Mapping[str, Any], value: Any) -> str | None:
    if not isinstance(value, str):
        return f"must be a string, not {_quote(value)}"
    if entry["choices"] is not None and value not in entry["choices"]:
        return f"must be one of {', '.join(entry['choices'])}"
    if len(value) > entry["longest"]:
        return f"must be at most {entry['longest']} characters"
    return None
