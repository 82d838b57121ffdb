"""Checks a call's arguments with its tool's schema, and explains to the model what doesn't fit."""

import json
from collections.abc import Mapping
from typing import Any

from workers.environments.entry import ToolDescription
from workers.rewards import schema

LONGEST_SCHEMA_SHOWN = 300
MAX_NAMED = 5


def schema_problem(tool: ToolDescription) -> str:
    """Return a sentence why the tool's schema can't be used; "" if it can."""
    try:
        problem = schema.problem(_text(tool))
    except (TypeError, ValueError) as error:
        return f"The parameters of the tool {tool.name!r} are no JSON: {error}."
    return f"The schema of the tool {tool.name!r} {problem}." if problem else ""


def read(arguments: Any) -> Any:
    """Parse arguments, which some templates write as JSON text."""
    return schema.parsed(arguments) if isinstance(arguments, str) else arguments


def problem(tool: ToolDescription, arguments: Any) -> str:
    """Return a sentence about what is wrong with the arguments; "" if nothing."""
    name, parameters = tool.name, tool.parameters
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        return f"The arguments of {name} must be a JSON object."
    properties, required = parameters.get("properties"), parameters.get("required")
    named: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    if missing := [key for key in (required if isinstance(required, list) else ()) if key not in arguments]:
        return f"{name} needs {', '.join(map(repr, missing))}."
    open_ended = "additionalProperties" in parameters or "patternProperties" in parameters
    if unknown := [] if open_ended else [key[:100] for key in arguments if key not in named]:
        has = ", ".join(named) or "none"
        return f"{name} has no argument {', '.join(map(repr, unknown[:MAX_NAMED]))}. Its arguments are: {has}."
    text = _text(tool)
    try:
        fits = schema.fits(dict(arguments), text)
    except TimeoutError as error:
        return f"The arguments of {name} can't be checked: {error}."
    return "" if fits else f"The arguments of {name} don't fit: they must be {text[:LONGEST_SCHEMA_SHOWN]}"


def _text(tool: ToolDescription) -> str:
    return json.dumps(dict(tool.parameters))
