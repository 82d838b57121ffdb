"""Tests of code in the shapes that datasets have, which become Python tests or input/output tests."""

from __future__ import annotations

import base64
import json
import pickle
import zlib
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.columns import code_tests
from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.proposing import Recognised
from controlplane.catalogue.datasets.reader.columns.recognising_columns import recognise
from workers.contract.run.code_tests import InputOutputTest, unpack

PROGRAM = [InputOutputTest("3\n", "1 2\n"), InputOutputTest("12\n", "5 7\n")]
CALLS = [InputOutputTest(6, call="double", args=[3]), InputOutputTest(0, call="double", args=[0])]
PAIRS = {"inputs": ["1 2\n", "5 7\n"], "outputs": ["3\n", "12\n"]}
ITEMS = [{"input": "1 2\n", "output": "3\n"}, {"input": "5 7\n", "output": "12\n"}]
TYPED = [{"type": "stdin_stdout", **item} for item in ITEMS]
CALLED = {"fn_name": "double", "inputs": [[3], [0]], "outputs": [6, 0]}
LINES = [
    {"testtype": "functional", "input": "3", "output": "6"},
    {"testtype": "functional", "input": "0", "output": "0"},
]
ARGUMENTS = [{"type": "function_call", "input": [3], "output": 6}, {"type": "function_call", "input": [0], "output": 0}]
STARTER = {"starter_code": "class Solution:\n    def double(self, n: int) -> int:\n        "}


def compressed(value: Any) -> str:
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def read(value: Any, **row: Any) -> list[str]:
    return code_tests.tests({"tests": value, **row}, "tests", is_required=True)


def unpacked(value: Any, **row: Any) -> list[InputOutputTest | None]:
    return [unpack(test) for test in read(value, **row)]


@pytest.mark.parametrize(
    "value",
    [
        PAIRS,
        json.dumps(PAIRS),
        json.dumps(json.dumps(PAIRS)),
        repr(PAIRS),
        {"input": PAIRS["inputs"], "output": PAIRS["outputs"]},
        ITEMS,
        TYPED,
        json.dumps(TYPED),
        [json.dumps(item) for item in TYPED],
        [["1 2\n", "3\n"], ["5 7\n", "12\n"]],
        {"language": "python", "test_cases": TYPED},
        {"language": "python", "test_cases": json.dumps([{**item, "fn_name": None} for item in TYPED])},
        [{"stdin": "1 2\n", "expected_output": "3\n"}, {"stdin": "5 7\n", "expected_output": "12\n"}],
        compressed(json.dumps(TYPED)),
    ],
)
def test_programs_tests_of_any_shape_become_the_same(value: Any) -> None:
    assert unpacked(value) == PROGRAM
    assert read(read(value)) == read(value), "an export can be uploaded again"


@pytest.mark.parametrize(
    ("value", "row"),
    [
        (CALLED, {}),
        (json.dumps(CALLED), {}),
        ([{**item, "fn_name": "double"} for item in ARGUMENTS], {}),
        (ARGUMENTS, {"fn_name": "double"}),
        (LINES, {"metadata": '{"func_name": "double"}'}),
        (json.dumps(LINES), {"metadata": {"func_name": "Solution.double"}}),
        (compressed(json.dumps(LINES)), STARTER),
    ],
)
def test_functions_tests_of_any_shape_become_the_same(value: Any, row: dict[str, Any]) -> None:
    assert unpacked(value, **row) == CALLS


def test_lines_and_numbers_become_text_for_a_program() -> None:
    assert unpacked({"inputs": [["2", "1 2"], 5], "outputs": [["3"], 10]}) == [
        InputOutputTest("3", "2\n1 2"),
        InputOutputTest("10", "5"),
    ]


def test_a_text_of_python_tests_is_split_by_function_or_assertion() -> None:
    head = "from solution import add\n"
    first, second = "def test_zero():\n    assert add(0) == 1\n", "def test_one():\n    assert add(1) == 2\n"
    assert read(f"{head}\n{first}\n{second}") == [head + first, head + second]
    assert read("assert f(1) == 2\nassert f(2) == 3") == ["assert f(1) == 2\n", "assert f(2) == 3\n"]
    assert read("x = f(1)\nassert x == 2\nx = f(2)\nassert x == 3") == [
        "x = f(1)\nassert x == 2\n",
        "x = f(1)\nx = f(2)\nassert x == 3\n",
    ]
    assert read("assert f(1) == 2; assert f(2) == 3") == ["assert f(1) == 2; assert f(2) == 3"]
    assert read("assert f(1 == 2") == ["assert f(1 == 2"], "its line is reported as a test that doesn't parse"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"inputs": ["1"], "outputs": ["1", "2"]}, "1 inputs, but 2 outputs"),
        ({"inputs": ["1"]}, "without outputs"),
        ([{"input": "1", "output": None}], "the output of test 1 as null"),
        ([{"input": "1"}], "test 1 without outputs"),
        ('{"inputs": ["1"], "outputs"', "begins like JSON"),
        (ARGUMENTS, "no fn_name"),
        ([{"type": "functional", "fn_name": "f", "input": "x", "output": "1"}], "isn't JSON: 'x'"),
        ("f(1) == 2", "without any assertion"),
        (7, "is a number"),
        ({"a": 1}, "without inputs"),
        (["assert f", 3], "test 2 as a number"),
        (["assert f", " "], "empty test 2"),
        ([{"input": "1", "output": "1"}] * 2_001, "2,001 tests"),
        ([{"input": "1" * (9 * 2**20), "output": "1"}], "at most 8,388,608"),
        (compressed(b"x" * (9 * 2**20)), "when decompressed"),
        ("eJ" + "A" * 20, "can't be decompressed"),
        (compressed(["1"]), "could run code"),
    ],
)
def test_damaged_tests_are_told(value: Any, says: str) -> None:
    with pytest.raises(RowProblem) as raised:
        read(value)
    assert says in str(raised.value)
    assert raised.value.field == "tests"


def test_a_pickle_is_never_loaded(tmp_path: Any) -> None:
    class Runs:
        def __reduce__(self) -> tuple[Any, ...]:
            return (open, (str(tmp_path / "written"), "w"))

    with pytest.raises(RowProblem):
        read(compressed(Runs()))
    assert not (tmp_path / "written").exists()


def proposed(row: dict[str, Any]) -> Recognised:
    return recognise([row], [{"name": name} for name in row])


@pytest.mark.parametrize(
    ("row", "prompt", "answer", "tests"),
    [
        ({"question": "Add.", "solutions": '["print(1)"]', "input_output": json.dumps(PAIRS), "difficulty": "easy"},
         "question", "solutions", "input_output"),
        ({"question_title": "Sum", "question_content": "Read two numbers.", "public_test_cases": json.dumps(LINES),
          "private_test_cases": compressed(json.dumps(LINES)), "metadata": "{}", **STARTER},
         "question_content", "", "private_test_cases"),
        ({"question": "Add.", "solution": "def f(n): return n", "test": "def test_f():\n    assert f(1) == 1"},
         "question", "solution", "test"),
        ({"problem": "Add.", "solutions": ["print(1)"], "tests": json.dumps(TYPED)}, "problem", "solutions", "tests"),
        ({"prompt": "Add.", "gold_standard_solution": "print(1)", "verification_info": {"test_cases": TYPED}},
         "prompt", "gold_standard_solution", "verification_info"),
        ({"prompt": "Add.", "ground_truth": json.dumps(PAIRS)}, "prompt", "", "ground_truth"),
    ],
)  # fmt: skip
def test_the_mapping_proposes_the_column_with_tests(row: dict[str, Any], prompt: str, answer: str, tests: str) -> None:
    mapping = proposed(row).mapping
    assert (mapping.prompt, mapping.answer, mapping.test_cases) == (prompt, answer, tests)
