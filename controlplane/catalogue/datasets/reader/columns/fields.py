"""Reads column values for the mapping: text, answer, list of tests, tags; or raises the row's problem."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]


class RowProblem(Exception):
    """The mapping doesn't fit a row. `kind`: one of problems.KINDS; `field`: the column; the message is for people."""

    def __init__(self, kind: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


def present(row: Row, name: str) -> Any:
    """The column's value. Raises RowProblem if it is missing or null."""
    value = row.get(name)
    if value is None:
        how = "null" if name in row else "missing"
        raise RowProblem("missing_field", f"“{name}” is {how} in this row.", name)
    return value


def text(row: Row, name: str, what: str) -> str:
    """A non-empty text; `what` names its purpose: `a prompt`."""
    value = present(row, name)
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; {what} is a text.", name)
    if not value.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return value


def optional_text(row: Row, name: str) -> str:
    """An optional text; "" if missing."""
    value = row.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; it has to be a text.", name)
    return value if value.strip() else ""


def text_or_number(row: Row, name: str) -> str:
    """An answer as a text."""
    value = present(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; an answer is a text or a number.", name)
    answer = str(value)
    if not answer.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return answer


def tests(row: Row, name: str, *, needed: bool) -> list[str]:
    """A list of tests as texts; in CSV, which has no lists, a JSON list in a text."""
    value = row.get(name)
    if value is None or value == "":
        if needed:
            raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
        return []
    if isinstance(value, str):
        value = listed(value)
        if value is None:
            message = f'“{name}” is one text; test cases are a list of texts: ["assert f(1) == 2", …].'
            raise RowProblem("test_cases_type", message, name)
    if not isinstance(value, list):
        raise RowProblem("test_cases_type", f"“{name}” is {kind(value)}; test cases are a list of texts.", name)
    for place, case in enumerate(value, 1):
        if not isinstance(case, str):
            raise RowProblem("test_cases_type", f"Test {place} in “{name}” is {kind(case)}, not a text.", name)
        if not case.strip():
            raise RowProblem("test_cases_type", f"Test {place} in “{name}” is empty.", name)
    if needed and not value:
        raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
    return list(value)


def check_call(row: Row, name: str, function_name: str) -> list[str]:
    """A HumanEval row's test: a text that defines `check`, and its call with the function named in `function_name`."""
    test = text(row, name, "a test")
    function = text(row, function_name, "the name of a function").strip()
    if not function.isidentifier():
        raise RowProblem("wrong_type", f"“{function_name}” is not the name of a function.", function_name)
    return [f"{test.rstrip()}\n\ncheck({function})\n"]


def difficulty(row: Row, name: str) -> str | int | float | None:
    """The row's difficulty, or None."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; a difficulty is a text or a number.", name)
    return value


def tags(row: Row, name: str) -> list[str]:
    """The row's tags: a list of texts, a JSON list in a text, or comma-separated words."""
    value = row.get(name)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        many = listed(value)
        value = many if many is not None else [word.strip() for word in value.split(",") if word.strip()]
    if not (isinstance(value, list) and all(isinstance(tag, str) for tag in value)):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; tags are a list of texts.", name)
    return list(value)


def listed(json_text: str) -> list[Any] | None:
    """The list in a JSON text, or None."""
    if not json_text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(json_text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def kind(value: Any) -> str:
    """The kind of a value, in words."""
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "true or false"),
        (str, "a text"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (type(None), "null"),
    )
    return next((word for type_, word in kinds if isinstance(value, type_)), "an object")
