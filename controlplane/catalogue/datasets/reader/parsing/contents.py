"""Values in rows that JSON allows but training can't use."""

from typing import Any

from controlplane.catalogue.datasets.reader.excerpts import visible

DEEPEST = 64
LARGEST_INT = 2**63
LONGEST_NAME = 200


def problem(row: dict[str, Any], *, sound_values: bool = False) -> tuple[str, str, str] | None:
    """Find the first invalid name or value: (kind, message, field), or None. `sound_values`: only names are checked."""
    if not row:
        return "empty_object", "The object has no fields.", ""
    for name, value in row.items():
        if len(name) > LONGEST_NAME:
            return "field_name", f"A field's name is longer than {LONGEST_NAME} characters.", visible(name[:60])
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


def value_problem(value: Any, levels: int = DEEPEST - 1) -> tuple[str, str] | None:
    """Describe an invalid number, list or object: (kind, message with {name}), or None."""
    if levels == 0:
        return "nesting", f"{{name}} is nested deeper than {DEEPEST} levels."
    if isinstance(value, int):
        if not -LARGEST_INT <= value < LARGEST_INT:
            return "number_range", "An integer in {name} doesn't fit into 64 bits."
        return None
    if isinstance(value, str):
        return ("nul", "A text in {name} contains the NUL character.") if "\0" in value else None
    if isinstance(value, dict):
        for key, inner in value.items():
            if issue := value_problem(key) or value_problem(inner, levels - 1):
                return issue
    elif isinstance(value, list):
        for inner in value:
            if issue := value_problem(inner, levels - 1):
                return issue
    return None
