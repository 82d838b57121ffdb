"""Check for values in rows that JSON allows but training can't use."""

from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible

MAX_LEVELS = 64
INT_LIMIT = 2**63
MAX_NAME_CHARACTERS = 200


def problem(row: dict[str, Any], *, sound_values: bool = False) -> tuple[str, str, str] | None:
    """Return (kind, message, field) for the first invalid name or, unless `sound_values`, value; otherwise None."""
    if not row:
        return "empty_object", "The object has no fields.", ""
    for name, value in row.items():
        if len(name) > MAX_NAME_CHARACTERS:
            return "field_name", f"A field's name is longer than {MAX_NAME_CHARACTERS} characters.", visible(name[:60])
        if "\0" in name:
            return "nul", "A field's name contains the NUL character.", visible(name[:60])
        if sound_values:
            continue
        if isinstance(value, str):
            if "\0" in value:
                return "nul", f"“{visible(name)}” contains the NUL character.", visible(name)
        elif issue := value_problem(value):
            return issue[0], issue[1].format(name=f"“{visible(name)}”"), visible(name)
    return None


def value_problem(value: Any, levels: int = MAX_LEVELS - 1) -> tuple[str, str] | None:
    """Return (kind, message with {name}) of an invalid value, or None."""
    if levels == 0:
        return "nesting", f"{{name}} is nested deeper than {MAX_LEVELS} levels."
    if isinstance(value, int):
        if not -INT_LIMIT <= value < INT_LIMIT:
            return "number_range", "An integer in {name} doesn't fit into 64 bits."
        return None
    if isinstance(value, str):
        return ("nul", "A string in {name} contains the NUL character.") if "\0" in value else None
    if isinstance(value, dict):
        for key, inner in value.items():
            if issue := value_problem(key) or value_problem(inner, levels - 1):
                return issue
    elif isinstance(value, list):
        for inner in value:
            if issue := value_problem(inner, levels - 1):
                return issue
    return None
