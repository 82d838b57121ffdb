"""An own tool's name, description and schema, from its text alone."""

from __future__ import annotations

import pytest

from workers.environments import signature
from workers.environments.library import LIBRARY

FULL = '''
import time
time.sleep(10 ** 9)

def _helper(x):
    return x

def find(query: str, limit: int = 5, kind: Literal["title", "text"] = "text", tags: list[str] | None = None) -> str:
    """Find documents.

    The best come first.

    Args:
        query (str): What to look for.
            Words, no operators.
        limit: How many.

    Returns:
        Their titles.
    """
    return query
'''


def one(signature_: str, body: str = "return ''", doc: str = "Act.") -> str:
    return f'{signature_}:\n    """{doc}"""\n    {body}\n'


def test_a_tool_is_described_by_its_signature_and_docstring() -> None:
    tool = signature.describe(FULL)
    assert (tool.name, tool.description) == ("find", "Find documents.\n\nThe best come first.")
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "What to look for. Words, no operators."},
            "limit": {"type": "integer", "description": "How many.", "default": 5},
            "kind": {"type": "string", "enum": ["title", "text"], "default": "text"},
            "tags": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None},
        },
        "required": ["query"],
    }


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        ("float", {"type": "number"}),
        ("'bool'", {"type": "boolean"}),
        ("int | str", {"type": ["integer", "string"]}),
        ("typing.Optional[int]", {"type": ["integer", "null"]}),
        ("dict[str, list[int]]",
         {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}}),
    ],
)  # fmt: skip
def test_types_become_a_schema(annotation: str, schema: dict[str, object]) -> None:
    assert signature.describe(one(f"def act(x: {annotation})")).parameters["properties"] == {"x": schema}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (one("def act(x)"), "the argument x of act has no type"),
        (one("def act(*args: str)"), "must not take *args"),
        (one("def act(**more: str)"), "must not take **more"),
        (one("async def act(x: str)"), "must not be async"),
        (one("def act(x: str)", "yield x"), "not yield"),
        (one("def act(x: str, /)"), "there must be no /"),
        (one("def act(x: bytes)"), "isn't one that a model can send"),
        (one("def act(x: set[str])"), "isn't one that a model can send"),
        (one("def act(x: dict[int, str])"), "the keys of x must be str"),
        (one("def wörter(x: str)"), "can't be a tool's name"),
        (one("def act(größe: str)"), "can't be an argument's name"),
        (one("def " + "a" * 65 + "(x: str)"), "can't be a tool's name"),
        (one("@cache\ndef act(x: str)"), "no decorator"),
        (one("def act(x: str)", doc=""), "has no docstring"),
        (one("def act(x: str)", doc="Act.\n\n    Args:\n        y: What.\n    "), "describes y"),
        (one("def _act(x: str)"), "defines no function"),
        (one("def act(x: str)") + one("def other(x: str)"), "defines 2 functions (act, other)"),
        ("def act(", "line 1"),
        ("x = " + "(" * 200, "brackets"),
        ("", "defines no function"),
    ],
)
def test_what_is_no_tool_is_refused_in_words(source: str, words: str) -> None:
    assert words in signature.problem(source)
    assert [one for one in LIBRARY["python_tool"].check({"source": source}) if words in one]


def test_the_source_to_start_from_is_a_tool() -> None:
    assert LIBRARY["python_tool"].check({}) == []
