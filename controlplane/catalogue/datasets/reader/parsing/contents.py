"""Check for values in rows that JSON allows but training can't use."""

from typing import Any

from controlplane.catalogue.datasets.reader.columns.paths import SPEAKERS
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


def as_row(value: Any) -> Any:
    """Return the row of a list or string in a file whose rows aren't objects: with “messages” if it is a conversation,
    with a column per value of a plain list, and with “row” or “text” otherwise."""
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, list) or not value:
        return value
    if all(isinstance(item, dict) and any(key in item for key in SPEAKERS) for item in value):
        return {"messages": value}
    if any(isinstance(item, dict | list) for item in value):
        return {"row": value}
    return {f"column {number}": item for number, item in enumerate(value, 1)}


def as_given(row: dict[str, Any]) -> Any:
    """Return the list or string that `as_row` made a row of."""
    [first, *others] = row.values()
    return [first, *others] if others or "column 1" in row else first
