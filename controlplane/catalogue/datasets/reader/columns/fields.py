"""Column values for the mapping: text, answer, list of tests, tags; or the row's problem."""

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
_KINDS = {bool: "true or false", str: "a text", int: "a number", float: "a number", list: "a list", type(None): "null"}


class RowProblem(Exception):
    """The mapping doesn't fit a row. `kind`: one of problems.KINDS; `field`: the column; the message is for people."""

    def __init__(self, kind: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


def present(row: Row, name: str) -> Any:
    """Read the column's value. Raises RowProblem if it is missing or null."""
    value = row.get(name)
    if value is None:
        state = "null" if name in row else "missing"
        raise RowProblem("missing_field", f"“{name}” is {state} in this row.", name)
    return value


def text(row: Row, name: str, purpose: str) -> str:
    """Read a non-empty text, whose `purpose` is `a prompt`, for example."""
    value = present(row, name)
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; {purpose} is a text.", name)
    if not value.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return value


def optional_text(row: Row, name: str) -> str:
    """Read an optional text; "" if missing."""
    value = row.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; it has to be a text.", name)
    return value if value.strip() else ""


def text_or_number(row: Row, name: str) -> str:
    """Read an answer as a text."""
    value = present(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; an answer is a text or a number.", name)
    answer = str(value)
    if not answer.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return answer


def tests(row: Row, name: str, *, needed: bool) -> list[str]:
    """Read a list of tests as texts; in CSV, which has no lists, a JSON list in a text."""
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
    for number, case in enumerate(value, 1):
        if not isinstance(case, str):
            raise RowProblem("test_cases_type", f"Test {number} in “{name}” is {kind(case)}, not a text.", name)
        if not case.strip():
            raise RowProblem("test_cases_type", f"Test {number} in “{name}” is empty.", name)
    if needed and not value:
        raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
    return list(value)


def check_call(row: Row, name: str, function_name: str) -> list[str]:
    """Build a HumanEval row's test: a text that defines `check`, and its call with the function that `function_name`
    names."""
    test = text(row, name, "a test")
    function = text(row, function_name, "the name of a function").strip()
    if not function.isidentifier():
        raise RowProblem("wrong_type", f"“{function_name}” is not the name of a function.", function_name)
    return [f"{test.rstrip()}\n\ncheck({function})\n"]


def difficulty(row: Row, name: str) -> str | int | float | None:
    """Read the row's difficulty, or None."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; a difficulty is a text or a number.", name)
    return value


def tags(row: Row, name: str) -> list[str]:
    """Read the row's tags: a list of texts, a JSON list in a text, or comma-separated words."""
    value = row.get(name)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        in_json = listed(value)
        value = in_json if in_json is not None else [word.strip() for word in value.split(",") if word.strip()]
    if not (isinstance(value, list) and all(isinstance(tag, str) for tag in value)):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; tags are a list of texts.", name)
    return list(value)


def listed(json_text: str) -> list[Any] | None:
    """Parse the list in a JSON text; None if there is none."""
    if not json_text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(json_text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def kind(value: Any) -> str:
    """Name the kind of a value in a sentence."""
    return _KINDS.get(type(value), "an object")
