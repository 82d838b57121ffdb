"""Checks of a call's arguments against its tool's schema, with explanations for the model."""

import json
from collections.abc import Mapping
from typing import Any

from workers.environments.entry import ToolDescription
from workers.rewards import schema

MAX_SCHEMA_SHOWN = 300
MAX_NAMED = 5


def schema_problem(tool: ToolDescription) -> str:
    """Explain why the tool's schema can't be used; return "" if it can."""
    try:
        problem = schema.problem(_schema_json(tool))
    except (TypeError, ValueError) as error:
        return f"The parameters of the tool {tool.name!r} are not valid JSON: {error}."
    return f"The schema of the tool {tool.name!r} {problem}." if problem else ""


def read(arguments: Any) -> Any:
    """Return a call's arguments, parsed if the chat template wrote them as a JSON string."""
    return schema.parsed(arguments) if isinstance(arguments, str) else arguments


def problem(tool: ToolDescription, arguments: Any) -> str:
    """Explain what is wrong with a call's arguments; return "" if they are valid."""
    name, parameters = tool.name, tool.parameters
    if not isinstance(arguments, Mapping) or not all(isinstance(key, str) for key in arguments):
        return f"The arguments of {name} must be a JSON object."
    properties, required = parameters.get("properties"), parameters.get("required")
    schemas_by_name: Mapping[str, Any] = properties if isinstance(properties, Mapping) else {}
    if missing_keys := [key for key in (required if isinstance(required, list) else ()) if key not in arguments]:
        return f"{name} needs {', '.join(map(repr, missing_keys))}."
    is_open_ended = "additionalProperties" in parameters or "patternProperties" in parameters
    if unknown_keys := [] if is_open_ended else [key[:100] for key in arguments if key not in schemas_by_name]:
        names = ", ".join(schemas_by_name) or "none"
        return f"{name} has no argument {', '.join(map(repr, unknown_keys[:MAX_NAMED]))}. Its arguments are: {names}."
    schema_json = _schema_json(tool)
    try:
        is_valid = schema.fits(dict(arguments), schema_json)
    except TimeoutError as error:
        return f"The arguments of {name} can't be checked: {error}."
    return "" if is_valid else f"The arguments of {name} don't fit: they must be {schema_json[:MAX_SCHEMA_SHOWN]}"


def _schema_json(tool: ToolDescription) -> str:
    return json.dumps(dict(tool.parameters))
