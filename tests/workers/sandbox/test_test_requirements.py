"""What a test needs of a candidate, read from its syntax."""

from __future__ import annotations

import keyword
import sys
import time

import pytest

from tests.workers.sandbox.test_verdict import RIGHTLY
from workers.sandbox.requirements import assertions, forbidden_in_tests, free_names, test_requirements
from workers.sandbox.requirements.test_requirements import Requirements, packed_of_short, read, read_bounded


def problems(test: str) -> str:
    requirements = read_bounded(test)
    return requirements.problem if requirements else ""


def doubts(test: str) -> str:
    requirements = read_bounded(test)
    return requirements.doubts if requirements else ""


def test_plain_tests_need_nothing_more(subtests: pytest.Subtests) -> None:
    for test in RIGHTLY:
        with subtests.test(test=test):
            assert problems(test) == ""


@pytest.mark.parametrize(
    "test",
    [
        "s = shout('a')\nassert s.upper() == 'A' and f(2).bit_length() == 2",
        "import numpy as np\nassert np.allclose(f([1]), np.array([1]))",
        "assert np.allclose(f(1), 1)",
        "assert Extract([[1, 2]]) == [1]",
        "assert sorted(f(x) for x in (1, 2)) == [1, 2]",
        "assert isinstance(f(1), (int, float))",
        "class Case:\n    def run(self):\n        assert f(1) == 1\nCase().run()",
        "def helper(x):\n    return f(x)\nassert helper(1) == 1",
        "from main import f\nassert f(1)",
        "async def g(): pass\nassert f(1) == 1",
        "assert eval('1') == f(1)",
        "with open('/dev/null') as nothing:\n    assert f(nothing.read())",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(1), 1)",
        "def main():\n    assert f(1) == 1\nif __name__ == '__main__':\n    main()",
        "def f2(f):\n    return f(1)\nassert f2(g) == 1",
        "match f(1):\n    case [x]:\n        assert x\n",
        "x: int = f(1)\nassert (y := f(2)) == x or y",
    ],
)
def test_these_too(test: str) -> None:
    assert problems(test) == ""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("assert Calculator.add(1, 2) == 3", "“Calculator” is used as more than a function: Calculator.add."),
        (
            "assert Calculator().plus(1, 2) == 3",
            "The result of “Calculator” is used as more than a plain value: .plus.",
        ),
        ("s = Stack()\ns.push(1)\nassert s.pop() == 1", "“s” is used as more than a plain value: s.push."),
        ("assert isinstance(f(1), Thing)", "“Thing” is used as a class that the tested code defines."),
        ("assert isinstance(f(1), (int, Thing))", "“Thing” is used as a class"),
        ("try:\n    f(1)\nexcept Broken:\n    pass", "“Broken” is used as an exception that the tested code defines."),
        ("try:\n    f(1)\nexcept (ValueError, Broken):\n    pass", "exception"),
        ("class Mine(Base):\n    pass\nassert f(1)", "“Base” is used as a class to derive from."),
        ("assert f(lambda x: x) == 1", "A function that the test defines is passed to “f”."),
        ("assert f(key=lambda x: x) == 1", "A function that the test defines is passed"),
        ("def key(x): return x\nassert f([1], key) == 1", "A function that the test defines is passed"),
        ("class Node: pass\nassert f(Node()) == 1", "“Node” creates an object that is passed to “f”."),
        ("class Node: pass\nassert f(Node) == 1", "A class that the test defines is passed to “f”."),
        (
            "assert longest([Pair(5, 24), Pair(39, 60)], 2) == 1",
            "“Pair” creates an object that is passed to “longest”.",
        ),
        ("assert adder(3)(4) == 7", "A function that the tested code returns is called: “adder”."),
        ("add = adder(3)\nassert add(4) == 7", "A function that the tested code returns is called: “add”."),
        ("assert LIMIT == 3 and f(1)", "“LIMIT” is used as a value, not called as a function."),
        ("assert TABLE['a'] == f(1)", "“TABLE” is used as a value"),
        ("assert eval(f('1 + 1')) == 2", "“eval” could execute what the tested code returns."),
        ("exec(f('x'))", "“exec” could execute"),
        ("import pickle\nassert pickle.loads(f(1)) == 2", "“pickle.loads” could execute"),
        ("async def main():\n    assert await f(1) == 1\nimport asyncio\nasyncio.run(main())", "is awaited"),
        ("import asyncio\nassert asyncio.run(f(1)) == 1", "is awaited"),
        (
            "def check(candidate):\n    assert candidate(1) == 2",
            "It doesn't call anything that the tested code defines.",
        ),
        ("assert 1 == 1", "It doesn't call anything"),
        ("# nothing", "It doesn't call anything"),
        ("", "It doesn't call anything"),
        ("x = 5", "It doesn't call anything"),
        ("assert abs(-1) == 1", "It doesn't call anything"),
        (
            "def check(candidate):\n    assert candidate.size == 3\ncheck(f)",
            "“candidate” is used as more than a function",
        ),
        ("def check(candidate):\n    c = candidate(1)\n    assert c.wealth == 3\ncheck(f)", "“c” is used as more"),
    ],
)
def test_what_needs_more_is_told(test: str, said: str) -> None:
    assert said in problems(test)


@pytest.mark.parametrize("test", ["assert f(", "\0", "\ud800", "return 1 +"])
def test_what_does_not_parse_is_not_judged_here(test: str) -> None:
    assert problems(test) == ""


@pytest.mark.parametrize(
    "test",
    [
        "assert f(" * 20_000,
        "[" * 59 + "f(1)" + "]" * 59,
        "-" * 40_000 + "1",
        "1+" * 20_000 + "f(1)",
        "f" + "(1)" * 15_000,
        "f" + ".a" * 20_000,
        "lambda:" * 5_000 + "f(1)",
        "if 1: 1\n" + "elif 1: 1\n" * 4_000,
        "assert f(1)\n" * 4_000,
        "assert f([" + "1," * 20_000 + "])",
        "".join(" " * n + f"def f{n}():\n" for n in range(90)) + " " * 90 + "f(1)",
        "x = f(1)\n" + "x.a\n" * 10_000,
        "f(" + "lambda: " * 400 + "1)",
        "".join(" " * n + "class A:\n" for n in range(90)) + " " * 90 + "def g(a=f(1)): f(a)",
    ],
)
def test_long_and_deep_tests_hurt_nobody(test: str) -> None:
    assert len(test) > 50_000 or isinstance(problems(test), str)
    began = time.process_time()
    problems(test)
    assert time.process_time() - began < 5  # of the processor, a hundred times what it takes


@pytest.mark.parametrize("test", ["assert f(1) == math.pi", "assert True", "def test_a():\n    assert f(1)"])
def test_a_verifier_gets_the_requirements_of_short_tests_as_they_were_read(test: str) -> None:
    packed = packed_of_short(test)
    assert packed is not None
    assert Requirements.unpacked(test, packed) == read(test)


def test_others_are_left_to_the_verifier(subtests: pytest.Subtests) -> None:
    for test in [
        "assert f(",
        "from solution import f\nassert f(1)",
        "assert f('\\d')",
        "assert f(1)\n" * 1_000,
        "f(" * 61,
        "\0",
    ]:
        with subtests.test(test=test):
            assert packed_of_short(test) is None


def test_functions_that_only_pytest_would_run_are_named() -> None:
    found = read("def test_a():\n    assert f(1)\ndef helper():\n    pass\ndef test_b(fixture):\n    pass")
    assert found.runs == ("test_a",)
    assert found.problem == ""
    assert read("def test_a():\n    assert f(1)\ntest_a()").runs == ()


def test_names_of_the_library_are_taken_from_there() -> None:
    found = read("assert f(1) == Counter(a=1) and math.pi > 3 and string.ascii_letters and copy(1)")
    assert found.library == {"Counter": ("collections", "Counter"), "math": ("math", ""), "string": ("string", "")}
    assert found.names == {"f", "copy"}


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("assert f(0) == 0\ndef check(candidate):\n    assert candidate(5) == 25", "Nothing calls “check”"),
        ("assert f(0) == 0\ndef test_b(x, *, y):\n    assert f(5) == 25", "Nothing calls “test_b”"),
        ("def test_a():\n    assert f(0)\nasync def test_b():\n    assert f(5) == 25", "Nothing awaits “test_b”"),
        ("def test_a():\n    assert f(0)\ndef test_b():\n    yield\n    assert f(5)", "Nothing calls “test_b”"),
        ("def test_a():\n    assert f(0)\ndef outer():\n    def inner():\n        assert f(5)\nouter()", "“inner”"),
        ("class T:\n    def test_b(self):\n        assert f(5) == 25\nassert f(0)", "Nothing calls “test_b”"),
        ("class TestF:\n    def test_b(self, fixture):\n        assert f(5) == 25\nassert f(0)", "“test_b”"),
        (
            "class TestF:\n    def __init__(self): pass\n    def test_b(self):\n        assert f(5)\nassert f(0)",
            "“test_b”",
        ),
        (
            "from unittest import TestCase\nclass T(TestCase):\n    async def test_a(self):\n        assert f(1)",
            "Nothing awaits “test_a”",
        ),
        (
            "def test_a():\n    assert f(0)\nimport pytest\n@pytest.fixture\ndef b(x):\n    assert x",
            "",
        ),
        (
            "import pytest\n@pytest.mark.parametrize('a', [1])\ndef test_f(a):\n    assert f(a)\nassert f(0)",
            "Nothing calls “test_f”",
        ),
        ("async def main():\n    assert f(5) == 25\nmain()\nf(1)", "Nothing awaits “main” in line 3"),
        ("def main():\n    yield\n    assert f(5) == 25\nmain()\nf(1)", "The iterator in line 4 is never consumed"),
        ("def check(x):\n    assert f(x)\nmap(check, [1, 2])", "The iterator in line 3 is never consumed"),
        ("def check(x):\n    assert f(x)\n(check(x) for x in [1])", "The iterator in line 3 is never consumed"),
        ("class D:\n    def __del__(self):\n        assert f(1) == 3\nf(0)", "“__del__” are ignored"),
        ("f(1) == 2", "The comparison in line 1 is not asserted."),
        ("assert f(1) == 1\nnot f(2) == 3", "The comparison in line 2 is not asserted."),
        ("f(1)\nf(2)", "It checks nothing"),
        ("print('right' if f(1) == 2 else 'wrong')", "It checks nothing"),
        ("try:\n    f(1)\nexcept ValueError:\n    pass", "It checks nothing"),
        ("assert (f(1) == 2, 'two')", "is always true"),
        ("assert (f(x) == 2 for x in (1, 2))", "is always true"),
        ("try:\n    assert f(1) == 2\nexcept AssertionError:\n    print('no')", "is swallowed"),
        ("for x in (1, 2):\n    try:\n        assert f(x) == 2\n    except:\n        pass", "is swallowed"),
    ],
)
def test_what_would_pass_without_having_judged_is_told(test: str, said: str) -> None:
    assert said in problems(test)
    assert bool(said) == bool(problems(test))


@pytest.mark.parametrize(
    "test",
    [
        "import pickle as p\nassert p.loads(f(1)) == 3",
        "from pickle import loads\nassert loads(f(1)) == 3",
        "from pickle import *\nassert loads(f(1)) == 3",
        "import io, pickle\nassert pickle.Unpickler(io.BytesIO(f(1))).load() == 3",
        "from pickle import Unpickler as U\nassert U(f(1)).load() == 3",
        "import numpy as np\nassert np.load(f(1), allow_pickle=True) == 3",
        "assert list(map(eval, f(1))) == [3]",
        "e = eval\nassert e(f(1)) == 3",
        "import builtins\nassert builtins.eval(f(1)) == 3",
        "from builtins import exec as run\nrun(f(1))\nassert f(1)",
        "import builtins\nassert getattr(builtins, f(1))('3') == 3",
        "import operator\nassert operator.call(eval, f(1)) == 3",
        "import timeit\nassert timeit.timeit(f(1), number=1) < 1",
    ],
)
def test_what_could_run_a_value_is_told(test: str) -> None:
    assert "could execute what the tested code returns" in problems(test)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        (
            "import io, contextlib\nb = io.StringIO()\nwith contextlib.redirect_stdout(b):\n    f(3)\nassert b",
            "is visible only in its own process",
        ),
        ("import io, sys\nsys.stdout = out = io.StringIO()\nf(1)\nassert out.getvalue()", "It changes sys.stdout"),
        ("from unittest.mock import patch\nwith patch('builtins.input'):\n    assert f(1)", "changes nothing in"),
        ("import random\nrandom.seed(3)\na = f(1)\nrandom.seed(3)\nassert f(1) == a", "seeds random numbers"),
        ("import tempfile\nwith tempfile.TemporaryFile() as t:\n    assert f(t.name)", "needs a folder"),
        ("with open('a', 'w') as t:\n    t.write('b')\nassert f('a') == 'b'", "It writes a file"),
        ("from pathlib import Path\nPath('a').write_text('b')\nassert f('a') == 'b'", "needs a folder"),
    ],
)
def test_what_the_candidates_process_has_alone_is_told(test: str, said: str) -> None:
    assert said in problems(test)


def test_what_a_test_seeds_for_itself_is_its_own() -> None:
    assert problems("import random\nrandom.seed(3)\nx = random.random()\nrandom.seed(4)\nassert f(x) == x") == ""
    assert problems("import random\nrandom.seed(3)\nassert f(1) == 1") == ""


def test_helpers_of_a_library_are_taken_from_there_beside_another_name() -> None:
    assert read("assert isclose(f(2), sqrt(2))").names == {"f"}
    assert read("assert isclose(1, 1)").names == {"isclose"}
    assert read("x = [1]\nassert f(x) == deepcopy(x)").library == {"deepcopy": ("copy", "deepcopy")}
    assert read("assert_allclose(f(1), 2)").library["assert_allclose"] == ("numpy.testing", "assert_allclose")


def test_a_name_that_only_looks_at_what_another_gives_is_doubted() -> None:
    assert "“is_valid” is part of the tested code" in doubts("assert is_valid(f(1))")
    assert "“compare”" in doubts("compare(f(1), 3)\nassert f(1)")
    assert doubts("assert f(g(1)) == 1") == ""
    assert doubts("def is_valid(x):\n    return x\nassert is_valid(f(1))") == ""
    assert problems("assert is_valid(f(1))") == ""


def known_names() -> list[str]:
    """Every name that a rule is about."""
    rules = [vars(module) for module in (assertions, forbidden_in_tests, free_names, test_requirements)]
    sets = [rule for module in rules for rule in module.values() if isinstance(rule, frozenset | dict)]
    names = {name for rule in sets for name in rule if isinstance(name, str)} | sys.stdlib_module_names
    return sorted(name for name in names if name.isidentifier() and not keyword.iskeyword(name))


def test_tests_that_only_compare_values_are_read_as_all_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    values = ("{}(1, -2, 'w') == 3", "{}('a', ['b', (None,)]) != \"test\"", "{}() is True\nassert {}([[1]]) < 2 < 3")
    tests = [f"assert {value.replace('{}', name)}" for name in [*known_names(), "f", "Pair"] for value in values]
    quickly = [read(test) for test in tests]
    monkeypatch.setattr(test_requirements, "_called_with_values", lambda tree: "")
    assert len(tests) > 1000
    assert [test for test, requirements in zip(tests, quickly, strict=True) if read(test) != requirements] == []


def test_functions_deep_inside_each_other_are_told_without_being_read() -> None:
    assert "too deeply" in problems("lambda:" * 560 + "f(1)")
    assert "too deeply" in read("lambda:" * 560 + "f(1)").problem
