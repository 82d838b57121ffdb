"""A call's arguments against its tool's schema, with a sentence for the model where they don't fit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from workers.environments.entry import ToolDescription
from workers.rewards import schema

LONGEST_SCHEMA_SHOWN = 300
MOST_NAMED = 5


def schema_problem(tool: ToolDescription) -> str:
    """Why arguments can't be checked against it, as a sentence for people; "": they can."""
    try:
        problem = schema.problem(_text(tool))
    except (TypeError, ValueError) as error:
        return f"The parameters of the tool {tool.name!r} are no JSON: {error}."
    return f"The schema of the tool {tool.name!r} {problem}." if problem else ""


def read(arguments: Any) -> Any:
    """Some templates write them as a text of JSON."""
    return schema.parsed(arguments) if isinstance(arguments, str) else arguments


def problem(tool: ToolDescription, arguments: Any) -> str:
    """What is wrong with them; "": nothing."""
    name, described = tool.name, tool.parameters
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        return f"The arguments of {name} must be a JSON object."
    properties, required = described.get("properties"), described.get("required")
    known: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    if missing := [one for one in (required if isinstance(required, list) else ()) if one not in arguments]:
        return f"{name} needs {', '.join(map(repr, missing))}."
    open_ended = "additionalProperties" in described or "patternProperties" in described
    if unknown := [] if open_ended else [one[:100] for one in arguments if one not in known]:
        has = ", ".join(known) or "none"
        return f"{name} has no argument {', '.join(map(repr, unknown[:MOST_NAMED]))}. Its arguments are: {has}."
    text = _text(tool)
    try:
        fits = schema.fits(dict(arguments), text)
    except TimeoutError as error:
        return f"The arguments of {name} can't be checked: {error}."
    return "" if fits else f"The arguments of {name} don't fit: they must be {text[:LONGEST_SCHEMA_SHOWN]}"


def _text(tool: ToolDescription) -> str:
    return json.dumps(dict(tool.parameters))
