"""Reading of column values for the mapping (prompts, answers, tests, tags), or of the row's problem."""

import json
from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]
_KINDS = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "a list", type(None): "null"}


class RowProblem(Exception):
    """Problem of a row that doesn't fit the mapping, with a message for people. `kind` is one of problems.KINDS."""

    def __init__(self, kind: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


def present(row: Row, name: str) -> Any:
    """Return the column's value. Raises RowProblem if it is missing or null."""
    value = row.get(name)
    if value is None:
        state = "null" if name in row else "missing"
        raise RowProblem("missing_field", f"“{name}” is {state} in this row.", name)
    return value


def text(row: Row, name: str, purpose: str) -> str:
    """Return a non-empty string; `purpose` names it in messages, such as “a prompt”. Raises RowProblem."""
    value = present(row, name)
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; {purpose} must be a string.", name)
    if not value.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return value


def optional_text(row: Row, name: str) -> str:
    """Return an optional string; "" if it is missing. Raises RowProblem."""
    value = row.get(name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; it must be a string.", name)
    return value if value.strip() else ""


def text_or_number(row: Row, name: str) -> str:
    """Return an answer as a string. Raises RowProblem."""
    value = present(row, name)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; an answer must be a string or a number.", name)
    answer = str(value)
    if not answer.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return answer


def tests(row: Row, name: str, *, needed: bool) -> list[str]:
    """Return the tests from a list of strings or, as CSV has no lists, a JSON list in a string. Raises RowProblem."""
    value = row.get(name)
    if value is None or value == "":
        if needed:
            raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
        return []
    if isinstance(value, str):
        value = parse_list(value)
        if value is None:
            message = f'“{name}” is one string; test cases must be a list of strings: ["assert f(1) == 2", …].'
            raise RowProblem("test_cases_type", message, name)
    if not isinstance(value, list):
        raise RowProblem("test_cases_type", f"“{name}” is {kind(value)}; test cases must be a list of strings.", name)
    for number, case in enumerate(value, 1):
        if not isinstance(case, str):
            raise RowProblem("test_cases_type", f"Test {number} in “{name}” is {kind(case)}, not a string.", name)
        if not case.strip():
            raise RowProblem("test_cases_type", f"Test {number} in “{name}” is empty.", name)
    if needed and not value:
        raise RowProblem("missing_field", f"“{name}” has no test in this row.", name)
    return list(value)


def check_call(row: Row, name: str, function_name: str) -> list[str]:
    """Build the test of a HumanEval row: code that defines `check`, and a call of it. Raises RowProblem."""
    test = text(row, name, "a test")
    function = text(row, function_name, "the name of a function").strip()
    if not function.isidentifier():
        raise RowProblem("wrong_type", f"“{function_name}” is not the name of a function.", function_name)
    return [f"{test.rstrip()}\n\ncheck({function})\n"]


def difficulty(row: Row, name: str) -> str | int | float | None:
    """Return the row's difficulty; None if it has none. Raises RowProblem."""
    value = row.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; a difficulty must be a string or a number.", name)
    return value


def tags(row: Row, name: str) -> list[str]:
    """Return the tags from a list of strings, a JSON list in a string, or comma-separated words. Raises RowProblem."""
    value = row.get(name)
    if value is None or value == "":
        return []
    if isinstance(value, str):
        in_json = parse_list(value)
        value = in_json if in_json is not None else [word.strip() for word in value.split(",") if word.strip()]
    if not (isinstance(value, list) and all(isinstance(tag, str) for tag in value)):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; tags must be a list of strings.", name)
    return list(value)


def parse_list(json_text: str) -> list[Any] | None:
    """Parse a JSON list in a string; return None if there is none."""
    if not json_text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(json_text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def kind(value: Any) -> str:
    return _KINDS.get(type(value), "an object")
