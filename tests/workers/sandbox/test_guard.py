"""No value of a candidate's becomes code beside the verdict, whichever way a test would take it there."""

from __future__ import annotations

import textwrap

import pytest

from tests.workers.sandbox.forks import judged

GIVES = textwrap.dedent(
    """
    import marshal
    import pickle

    class Three:
        def __reduce__(self):
            return (eval, ("3",))

    def text():
        return "1 + 2"

    def texts():
        return ["1 + 2"]

    def name():
        return "eval"

    def pickled():
        return pickle.dumps(Three())

    def code():
        return marshal.dumps(compile("x = 3", "a", "exec"))

    def descriptor():
        return 1

    def five():
        return 5
    """
)
"""Each test below passes with it, if what it gives is executed."""


@pytest.mark.parametrize(
    "test",
    [
        "import pickle as p\nassert p.loads(pickled()) == 3",
        "from pickle import loads\nassert loads(pickled()) == 3",
        "import io, pickle\nassert pickle.Unpickler(io.BytesIO(pickled())).load() == 3",
        "import io, pickle\nassert pickle._Unpickler(io.BytesIO(pickled())).load() == 3",
        "import pickle\nassert vars(pickle)['loads'](pickled()) == 3",
        "import marshal, types\nassert marshal.loads(code())",
        "assert list(map(eval, texts())) == [3]",
        "import builtins\nassert builtins.eval(text()) == 3",
        "e = eval\nassert e(text()) == 3",
        "assert (lambda run: run(text()))(eval) == 3",
        "assert __builtins__['ev' + 'al'](text()) == 3",
        "import builtins\nassert getattr(builtins, name())(text()) == 3",
        "import builtins\nassert vars(builtins)[name()](text()) == 3",
        "import timeit\nassert timeit.timeit(text(), number=1) >= 0",
        "import code\nassert not code.InteractiveInterpreter({}).runsource(text())",
        "try:\n    x = [eval][0](text())\nexcept BaseException:\n    x = 3\nassert x == 3",
        "with open(descriptor(), 'w') as file:\n    assert file.write(text())",
        "import os\nassert os.system(text()) is not None",
        "import ctypes\nassert five() == 5 and ctypes.string_at(id(text())) is not None",
        "assert (lambda: five())() == 5 and type(text)(text(), {}) is None",
    ],
)
def test_no_value_becomes_code(test: str) -> None:
    found = judged(GIVES, test, "assert five() == 5")
    assert found.passed == [False, True]


def test_a_test_that_would_run_a_value_is_named_as_such() -> None:
    found = judged(GIVES, "import pickle\nassert vars(pickle)['loads'](pickled()) == 3")
    assert found.results[0].needs == "It could execute what the tested code returns: “pickle.find_class”."


def test_sympy_reads_no_text_of_a_candidate() -> None:
    pytest.importorskip("sympy")
    tests = ("import sympy\nassert sympy.simplify(text()) == 3", "import sympy\nassert sympy.Integer(3).equals(text())")
    found = judged(GIVES, *tests, "import sympy\nassert sympy.Integer(5) == five()")
    assert found.passed == [False, False, True]


def test_arrays_are_not_loaded_from_a_candidates_bytes() -> None:
    pytest.importorskip("numpy")
    test = "import io, numpy as np\nassert np.load(io.BytesIO(pickled()), allow_pickle=True) == 3"
    assert judged(GIVES, test).passed == [False]


@pytest.mark.parametrize(
    "test",
    [
        "assert five() == 5\nimport json.tool, tabnanny\nassert five() == 5",
        "assert five() == 5\nfrom collections import namedtuple\nassert namedtuple('T', 'a b')(five(), 2).a == 5",
        "five()\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int\nassert A(five()) == A(5)",
        "import ast\nfive()\nassert ast.literal_eval(text().replace('+', ',')) is not None",
        "import ast\nassert ast.literal_eval(str(five())) == 5 and ast.parse(text())",
        "assert five() == 5\nexec('assert five() == 5')\nassert eval(' 5') == five()",
        "assert five() == 5\nwith open('/dev/null') as nothing:\n    assert nothing.read() == ''",
        "import enum\nassert five() == enum.IntEnum('N', 'a b c d e').e",
        "import copy, re, decimal\nassert copy.deepcopy(five()) == 5 == decimal.Decimal(5) and re.compile(text())",
        "import unittest\nunittest.TestCase().assertEqual(five(), 5)",
    ],
)
def test_what_makes_no_code_of_a_value_is_left_alone(test: str) -> None:
    assert judged(GIVES, test).messages == ""
