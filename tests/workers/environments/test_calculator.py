from __future__ import annotations

import pytest

from workers.contract.run.episodes import ToolError
from workers.environments.entry import Result
from workers.environments.library import LIBRARY


def calculated(expression: str) -> Result:
    entry = LIBRARY["calculator"]
    session = entry.open("calculate", entry.build({}), None)  # type: ignore[arg-type]  # it needs no tools
    return session.call("calculate", {"expression": expression}, 1.0)


@pytest.mark.parametrize(
    ("expression", "answer"),
    [("(3 + 4) * 2 ** 3", "56"), ("7 / 2", "3.5"), ("2^10", "1024"), ("-sqrt(16)", "-4"), ("max(1, 2.5)", "2.5")],
)
def test_arithmetic_has_a_value(expression: str, answer: str) -> None:
    assert calculated(expression) == Result(answer)


@pytest.mark.parametrize(
    "expression",
    [
        "1 / 0",
        "9 ** 9 ** 9 ** 9",
        "__import__('os')",
        "(1).real",
        "1 +",
        "f(2)",
        "sqrt(1, 2)",
        "(" * 500,
        "(-8) ** 0.5",
    ],
)
def test_what_is_no_arithmetic_is_an_error_in_words(expression: str) -> None:
    result = calculated(expression)
    assert result.error is ToolError.RAISED
    assert result.text.endswith(".")
