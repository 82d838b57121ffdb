"""Reading of column values for the mapping: prompts, answers, tests, difficulties and tags."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from controlplane.catalogue.datasets.reader.columns.column_names import TRUTHS
from controlplane.catalogue.datasets.reader.columns.paths import value_of

Row = Mapping[str, Any]
ANSWER_KEYS = ("value", "text", "target", "answer", "answers", "ground_truth", "final_answer")
"""Keys of an object that is an answer, most reliable first; its “aliases” are right as well."""
_MAX_WHOLE_NUMBER = 1e15
"""Bound below which whole floats are written without their “.0”."""
_ANSWER_LIST_NAMES = ("answers", "aliases", "targets", "golds", "references", "solutions")
"""Ends of names of columns in which every item of a list is a right answer."""
_ORDERED_NAME = re.compile(
    r"(?:^|[._ -])(?:steps?|rank(?:ing|ed)?|order(?:ing|ed)?|sequence|path|route|moves|actions|plan|trajectory|sorted"
    r"|permutation|tests?|test_cases|asserts?|assertions|unit_tests)$"
)
_ORDERED_ITEM = re.compile(r"(?:step\s*)?\d{1,3}\s*[.):]\s|step\s*\d|assert[ (]|(?:first|then|finally),", re.IGNORECASE)
_KINDS = {bool: "a boolean", str: "a string", int: "a number", float: "a number", list: "a list", type(None): "null"}


class RowProblem(Exception):
    """Problem of a row that doesn't fit the mapping, with a message for people. `kind` is one of problems.KINDS."""

    def __init__(self, kind: str, message: str, field: str = "") -> None:
        super().__init__(message)
        self.kind = kind
        self.field = field


def required_value(row: Row, name: str) -> Any:
    """Return the column's value. Raises RowProblem if it is missing or null."""
    value = value_of(row, name)
    if value is None:
        state = "null" if name in row else "missing"
        raise RowProblem("missing_field", f"“{name}” is {state} in this row.", name)
    return value


def text(row: Row, name: str, purpose: str) -> str:
    """Return a non-empty string; `purpose` names it in messages, such as “a prompt”. Raises RowProblem if it is empty
    or not a string."""
    value = required_value(row, name)
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; {purpose} must be a string.", name)
    if not value.strip():
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return value


def optional_text(row: Row, name: str) -> str:
    """Return an optional string, or "" if it is missing or blank. Raises RowProblem if it is not a string."""
    value = value_of(row, name)
    if value is None or value == "":
        return ""
    if not isinstance(value, str):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; it must be a string.", name)
    return value if value.strip() else ""


def text_or_number(row: Row, name: str) -> str:
    """Return the first right answer as a string. Raises RowProblem if there is none, or it has another shape."""
    value = row.get(name)
    if isinstance(value, str) and not value.startswith("[") and value.strip():
        return value  # nearly always, and this runs for every row
    return answers(row, name)[0]


def answers(row: Row, name: str) -> list[str]:
    """Return the row's right answers as strings: usually one, or several from a list, an object with one of
    ANSWER_KEYS, or a JSON list in a string, if the column's name says so. Raises RowProblem if there is none, or it has
    another shape."""
    value = required_value(row, name)
    if isinstance(value, str) and not value.startswith("[") and value.strip():
        return [value]
    has_several = means_several(name)
    if isinstance(value, str) and (in_json := parse_list(value)) and all(isinstance(item, str) for item in in_json):
        is_list = has_several or (len(in_json) == 1 and any(truth in name for truth in TRUTHS))
        value = in_json if is_list else value  # elsewhere, a list may be the text that is asked for
    texts = answer_texts(value)
    is_sequence = isinstance(value, list) and len(value) > 1 and not all(isinstance(item, str) for item in value)
    if texts is None or (is_sequence and not has_several):  # [3, 1, 2] may be one answer
        message = f"“{name}” is {kind(value)}; an answer must be a string, a number or a list of them."
        raise RowProblem("wrong_type", message, name)
    if is_ordered(name, [value]):
        message = (
            f"“{name}” is a list whose order or parts matter, so no single item is the right answer. Join it into one "
            "string."
        )
        raise RowProblem("wrong_type", message, name)
    right = list(dict.fromkeys(text for text in texts if text.strip()))
    if not right:
        raise RowProblem("empty_field", f"“{name}” is empty.", name)
    return right


def means_several(name: str) -> bool:
    """Return whether a column's name says that each item of a list is a right answer."""
    return name.lower().endswith(_ANSWER_LIST_NAMES)


def is_ordered(name: str, values: Iterable[Any]) -> bool:
    """Return whether lists in a column are sequences, such as steps, rankings and tests, instead of alternatives,
    judged by its name, by their items, and by whether the rows have the same items in different orders."""
    lists = [value for value in values if isinstance(value, list) and len(value) > 1]
    texts = [[str(item) for item in value] for value in lists if all(isinstance(item, str) for item in value)]
    if not texts or means_several(name):
        return False
    if _ORDERED_NAME.search(name.lower()) or any(all(map(_ORDERED_ITEM.match, items)) for items in texts):
        return True
    return len({tuple(items) for items in texts}) > 1 and len({tuple(sorted(items)) for items in texts}) == 1


def answer_texts(value: Any) -> list[str] | None:
    """Return the texts of an answer in any shape, or None if it has another one."""
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, float) and value.is_integer() and abs(value) < _MAX_WHOLE_NUMBER:
        return [str(int(value))]
    if isinstance(value, str | int | float):
        return [str(value)]
    if isinstance(value, list):
        inner = [answer_texts(item) for item in value if item is not None]
        return None if None in inner else [text for texts in inner for text in texts or ()]
    key = next((key for key in ANSWER_KEYS if value.get(key) not in (None, [])), "") if isinstance(value, dict) else ""
    texts = answer_texts(value[key]) if key else None
    return None if texts is None else [*texts, *(answer_texts(value.get("aliases") or []) or ())]


def check_call(row: Row, name: str, function_name: str) -> list[str]:
    """Build the test of a HumanEval row: code that defines `check`, and a call of it. Raises RowProblem if a part is
    missing or the function's name is not valid."""
    test = text(row, name, "a test")
    function = text(row, function_name, "the name of a function").strip()
    if not function.isidentifier():
        raise RowProblem("wrong_type", f"“{function_name}” is not the name of a function.", function_name)
    return [f"{test.rstrip()}\n\ncheck({function})\n"]


def difficulty(row: Row, name: str) -> str | int | float | None:
    """Return the row's difficulty, or None if it has none. Raises RowProblem if it is neither a string nor a number."""
    value = value_of(row, name)
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise RowProblem("wrong_type", f"“{name}” is {kind(value)}; a difficulty must be a string or a number.", name)
    return value


def tags(row: Row, name: str) -> list[str]:
    """Return the tags from a list of strings, a JSON list in a string, or comma-separated words, or [] if there are
    none. Raises RowProblem for anything else."""
    value = value_of(row, name)
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
