"""Python in a dataset: where it doesn't parse, which texts are taken for it, and what can't hurt whoever asks."""

from __future__ import annotations

import warnings

import pytest

from controlplane.catalogue.datasets.reader.checking import code
from controlplane.catalogue.datasets.reader.checking.code import CodeProblem

GOOD = "def area(r):\n    return 3.14 * r ** 2\n"
BROKEN = "def area(r):\n    return 3.14 * (r ** 2\n"


def test_what_parses(subtests: pytest.Subtests) -> None:
    for text in [
        GOOD,
        "",
        "# nothing\n",
        "assert area(1) == 3.14",
        'x = "\\d"',
        "return 5",
        "a = (\n1,\n)",
        "x = 1\r\ny = 2\r\n",
    ]:
        with subtests.test(text=text):
            assert code.problem(text) is None


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        (BROKEN, 2, 19, "never closed"),
        ("x = 1\ny = = 2", 2, 5, "invalid syntax"),
        ("if x:\nprint(1)", 2, 1, "indented block"),
        ("if x:\n\ta = 1\n        b = 2", 3, 1, "tabs"),
        ("print 'hello'", 1, 1, "parentheses"),
        ("ä = 'ö' 5", 1, 9, "invalid syntax"),
        ("a = 1\nb = '\0'", 2, 6, "null bytes"),
        ("a = 1\nb = '\ud800'", 2, 6, "half a character"),
        ("x = " + "1" * 5_000, 1, 1, "digits"),
    ],
)
def test_what_does_not_parse_is_placed(text: str, line: int, column: int, said: str) -> None:
    found = code.problem(text)
    assert found is not None
    assert (found.line, found.column) == (line, column)
    assert said in found.message


@pytest.mark.parametrize(
    "text",
    [
        "-" * 40_000 + "1",
        "1+" * 20_000 + "1",
        "a" + "()" * 20_000,
        "lambda:" * 5_000 + "1",
        "if 1: 1\n" + "elif 1: 1\n" * 4_000,
    ],
)
def test_what_python_itself_can_not_parse_is_told_and_kills_nobody(text: str) -> None:
    found = code.problem(text)
    assert found is not None
    assert "nested" in found.message


def test_many_brackets_and_very_long_code_are_not_judged() -> None:
    assert code.problem("(" * 100_000) is None
    assert code.problem("(" * 61 + ")" * 60) is None
    assert code.problem("x = 1\n" * 20_000 + "y = (") is None
    assert code.problem("()" * 200 + "=") is not None


def test_warnings_of_the_parser_are_nobodys_business() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert code.problem(r"pattern = '\d+'; 1 is 2") is None


FENCED = f"Try this:\n\n```python\n{GOOD}```\n\nor\n\n  ~~~py\n  x = (\n  ~~~\nand in a shell\n```\n$ ls (\n```\n"


def test_fenced_blocks_are_judged_and_placed_in_the_whole_text() -> None:
    assert list(code.problems(FENCED, is_code_expected=True)) == [CodeProblem(11, 7, "'(' was never closed")]
    assert [(line, column) for line, column, _ in code.blocks(FENCED)] == [(4, 1), (11, 3)]


@pytest.mark.parametrize(
    "text",
    [
        "```python\n>>> 1 +\n  File\n```",
        "```js\nlet x = {\n```",
        "```python\nnever closed (",
        "from 3 apples take (2",
        "import java.util.List;\nclass A {",
        "import Foundation\nclass A: B {\n}",
        "class of 1999 (",
        "Use def f( to begin",
        "",
    ],
)
def test_prose_and_other_languages_are_left_alone(text: str) -> None:
    assert list(code.problems(text, is_code_expected=False)) == []


@pytest.mark.parametrize(
    "text",
    [BROKEN, f"# area\n{BROKEN}", f"import math\n\n{BROKEN}", "from math import pi\nx = (", "class A(B):\n  x = ("],
)
def test_what_begins_like_python_is_judged(text: str) -> None:
    assert [found.message for found in code.problems(text, is_code_expected=False)] == ["'(' was never closed"]


def test_beside_tests_any_answer_is_code() -> None:
    assert list(code.problems("n = int(input(\n", is_code_expected=False)) == []
    assert [found.line for found in code.problems("n = int(input(\n", is_code_expected=True)] == [1]
