"""What JSON's grammar allows in a value and nobody can train on: told of each row, whatever file it comes from."""

from __future__ import annotations

from typing import Any

from controlplane.datasets.reader.problems import Problem, visible

DEEPEST = 64
LARGEST_INT = 2**63
LONGEST_NAME = 200


def problem(row: dict[str, Any]) -> tuple[str, str, str] | None:
    """(kind, message, field) of the first thing that is wrong with the values; None: nothing."""
    if not row:
        return "empty_object", "The object has no fields.", ""
    for name, value in row.items():
        if len(name) > LONGEST_NAME:
            return "field_name", f"A field's name is longer than {LONGEST_NAME} characters.", visible(name[:60])
        if "\0" in name:
            return "nul", "A field's name contains the NUL character.", visible(name[:60])
        if isinstance(value, str):
            if "\0" in value:
                return "nul", f"“{visible(name)}” contains the NUL character.", visible(name)
        elif value is not None and value is not True and value is not False:
            found = of_value(value)
            if found:
                return found[0], found[1].format(name=f"“{visible(name)}”"), visible(name)
    return None


def of_value(value: Any, levels: int = DEEPEST - 1) -> tuple[str, str] | None:
    """(kind, message with {name} in it) of a number, a list or an object."""
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
            found = of_value(key) or of_value(inner, levels - 1)
            if found:
                return found
    elif isinstance(value, list):
        for inner in value:
            if found := of_value(inner, levels - 1):
                return found
    return None


def problems(row: dict[str, Any], line: int, excerpt: str, byte: int = -1) -> list[Problem]:
    found = problem(row)
    if found is None:
        return []
    kind, message, field = found
    return [Problem(line, kind, message, excerpt, byte=byte, field=field)]
