"""The verdict on code: right solutions pass, wrong ones fail, and nothing that code does makes a fail a pass.

Here both processes are plain forks; test_cheats.py has the same over the backends.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.workers.sandbox.cheats import FORGES, RIGHT, TESTS
from tests.workers.sandbox.forks import judged

SOLUTION = textwrap.dedent(
    """
    import math
    from collections import Counter, deque, namedtuple

    Pair = namedtuple("Pair", "left right")

    def area(r):
        return math.pi * r * r

    def square(x):
        return x * x

    def apply(function, x):
        return function(x)

    def sort_in_place(items):
        items.sort()

    def grow(table):
        table["rows"].append(3)
        table["more"] = True

    def total(first, *rest, scale=1):
        return (first + sum(rest)) * scale

    def numbers(n):
        yield from range(n)

    def endless():
        n = 0
        while True:
            yield n
            n += 1

    def letters(text):
        return Counter(text)

    def pair(a, b):
        return Pair(a, b)

    def keys(table):
        return table.keys()

    def window(n):
        return deque(range(n), maxlen=2)

    def checked(x):
        if x < 0:
            raise ValueError(f"{x} is negative")
        return x

    class TooBig(OverflowError):
        pass

    def bounded(x):
        if x > 10:
            raise TooBig(x)
        return x

    def lookup(table, key):
        return table[key]

    def unicode(text):
        return text[::-1] + "\\ud800ä\\0"

    def factorial(n):
        return math.factorial(n)
    """
)

RIGHTLY = [
    "assert abs(area(1) - 3.14) < 1e-2",
    "assert math.isclose(area(1), math.pi)",
    "import math\nassert math.floor(area(1)) == 3",
    "assert square(3) == 9 and square(-2) == 4, 'squares'",
    "assert square(3) == square(-3)",
    "assert [square(x) for x in range(4)] == [0, 1, 4, 9]",
    "assert list(map(square, [1, 2])) == [1, 4]",
    "assert type(square(2)) is int and isinstance(area(1), float)",
    "assert apply(square, 3) == 9",
    "assert apply(len, 'abc') == 3",
    "assert apply(str, 3) == '3'",
    "def check(candidate):\n    assert candidate(2) == 4\n    for x in range(5):\n        assert candidate(x) == x**2\n"
    "\ncheck(square)",
    "METADATA = {'author': 'x'}\n\n\ndef check(candidate):\n    assert candidate([3]) is None, 'none'\n"
    "check(sort_in_place)",
    "def check(square):\n    assert square(2) == 4\ncheck(square)",
    "from solution import square\n\ndef test_square():\n    assert square(2) == 4\n\n"
    "def test_more():\n    assert square(3) == 9",
    "from solution import *\nassert square(2) == 4",
    "items = [3, 1, 2]\nsort_in_place(items)\nassert items == [1, 2, 3]",
    "rows = [1, 2]\ntable = {'rows': rows}\ngrow(table=table)\nassert rows[2] == 3\n"
    "assert table == {'rows': [1, 2, 3], 'more': True}",
    "assert total(1, 2, 3, scale=2) == 12",
    "assert total(*[1, 2], **{'scale': 3}) == 9",
    "assert list(numbers(3)) == [0, 1, 2]",
    "assert next(numbers(3)) == 0",
    "import itertools\nassert list(itertools.islice(endless(), 3)) == [0, 1, 2]",
    "assert letters('aab') == {'a': 2, 'b': 1}",
    "assert letters('aab') == Counter('aba')",
    "assert pair(1, 2) == (1, 2) and pair(1, [2])[1] == [2]",
    "assert keys({'a': 1}) == {'a'} and sorted(keys({2: 0, 1: 0})) == [1, 2]",
    "assert list(window(5)) == [3, 4]",
    "try:\n    checked(-1)\nexcept ValueError as error:\n    assert 'negative' in str(error)\nelse:\n    assert False",
    "try:\n    checked(-1)\n    assert False, 'no error'\nexcept ValueError:\n    pass",
    "try:\n    bounded(11)\n    raise SystemExit\nexcept OverflowError as error:\n    assert error.args == (11,)",
    "try:\n    lookup({}, 'a')\nexcept KeyError as error:\n    assert error.args == ('a',)",
    "import unittest\nunittest.TestCase().assertRaises(ValueError, checked, -1)",
    "assert unicode('ab') == 'ba\\ud800ä\\0'",
    "assert factorial(2000) % 10**400 == 0 and factorial(5) == 120",
    "result = letters('ab')\nresult.update(c=1)\nassert sorted(result) == ['a', 'b', 'c']",
    "assert unicode('a').upper().startswith('A')",
    "candidate = square\nassert candidate(3) == 9",
    "for function, expected in ((square, 4), (checked, 2)):\n    assert function(2) == expected",
    "print('said', square(2))\nassert square(2)",
]


def test_a_right_solution_passes(subtests: pytest.Subtests) -> None:
    for test in RIGHTLY:
        with subtests.test(test=test):
            found = judged(SOLUTION, test)
            assert (found.messages, found.passed) == ("", [True])


WRONG = (
    SOLUTION.replace("return x * x", "return x + 1").replace("math.pi * r * r", "3 * r").replace("items.sort()", "pass")
)

WRONGLY = [
    ("assert abs(area(1) - 3.14) < 1e-2", "area(1) returned 3"),
    ("assert square(3) == 9 and square(-2) == 4", "square(3) returned 4"),
    ("assert square(3) == square(-3)", "square(-3) returned -2"),
    ("items = [3, 1, 2]\nsort_in_place(items)\nassert items == [1, 2, 3]", "assert items"),
    (
        "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(2) == 4\ncheck(square)",
        "candidate(2) == 4",
    ),
    ("from solution import square\n\ndef test_square():\n    assert square(2) == 4", "square(2) returned 3"),
    ("try:\n    square(-1)\n    assert False\nexcept ValueError:\n    pass", "square(-1) returned 0"),
    ("assert checked(-1) == 1", "ValueError: -1 is negative"),
    ("assert bounded(11) == 11", "TooBig: 11"),
    ("assert square() == 1", "TypeError: square() missing 1 required"),
    ("assert missing(1) == 1", "doesn't define missing"),
    ("try:\n    missing(1)\nexcept Exception:\n    pass\nassert True", "doesn't define missing"),
    ("import nowhere\nassert square(1) == 2", "No module named 'nowhere'"),
    ("if False:\n    assert square(1)", "without calling"),
    ("import sys\nsquare(1)\nsys.exit(0)", "SystemExit"),
    ("assert all(map(stops, [1, 2]))", "doesn't define stops"),
    ("assert square(3)[0] == 9", "TypeError"),
    ("assert list(endless())", "More than 10,000 values"),
]


def test_a_wrong_solution_fails_in_words(subtests: pytest.Subtests) -> None:
    for test, said in WRONGLY:
        with subtests.test(test=test):
            found = judged(WRONG, test)
            assert found.passed == [False]
            assert said in found.messages
            assert found.results[0].needs == ""


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("c = Pair(1, 2)\nassert c.left == 1", "c.left"),
        ("assert apply(lambda x: x, 3) == 3", "function that the test defines"),
        ("assert square(2", "can't be parsed"),
        ("assert True", "doesn't call anything"),
        ("f = min\nassert apply(f.__call__, 3)", "is called with a method-wrapper"),
    ],
)
def test_a_test_that_needs_more_never_passes(test: str, said: str) -> None:
    found = judged(SOLUTION, test, "assert square(2) == 4")
    assert found.passed == [False, True]
    assert said in found.results[0].needs


def test_a_function_that_stops_iteration_does_not_end_the_tests_own() -> None:
    source = "def stops(x):\n    raise StopIteration\n"
    found = judged(
        source, "assert all(map(stops, [1, 2]))", "try:\n    stops(1)\n    assert 0\nexcept StopIteration:\n    pass"
    )
    assert found.passed == [False, True]
    assert "raised StopIteration" in found.messages


def test_what_is_not_a_number_passes_only_where_a_test_knows_of_it() -> None:
    source = "def mean(items):\n    return sum(items) / len(items) if items else float('nan')\n"
    source += "def means(rows):\n    return [1.0, *map(mean, rows)]\n"
    tests = (
        *("assert not abs(mean([]) - 3) > 1e-3", "assert max(abs(x - 1) for x in means([[], []])) < 1e-3"),
        *("import math\nassert math.isnan(mean([]))", "assert mean([1, 3]) == 2", "assert means([]) == [1.0]"),
    )
    found = judged(source, *tests)
    assert found.passed == [False, False, True, True, True]
    assert [found.results[0].message, found.results[1].message] == ["mean returned NaN.", "means returned NaN."]


@pytest.mark.parametrize(
    "value",
    [
        "{'c': ['nan']}",
        "{'c': ['nan', '0']}",
        "{'c': [float('nan'), 0.0]}",
        "float('nan')",
        "{'array': ['<f8', [{'c': ['nan']}]]}",
        "{'array': ['<f8', [1.0, float('nan')]]}",
        "{'Decimal': {'t': ['NaN', 0.0]}}",
        "{'Decimal': {'t': ['sNaN', 1]}}",
        "{'Decimal': {'t': ['NaN', float('nan')]}}",
        "{'Decimal': {'t': [{'t': [0, {'t': [1]}, 'n']}, 0.0]}}",
        "{'Decimal': 'NaN'}",
        "[{'m': {'a': {'c': ['nan', 'nan']}}}]",
    ],
)
def test_no_forged_value_is_unseen_as_not_a_number(value: str) -> None:
    source = FORGES + f"def banana(x):\n    forge({value})\n"
    tests = (
        "import numpy as np\nassert not np.any(abs(np.ravel(banana(1)) - 3) > 1e-6)",
        "assert not abs(banana(1) - 3) > 1e-6",
        "got = banana(1)\nassert not abs((got[0] if hasattr(got, '__len__') else got) - 3) > 1e-6",
    )
    assert judged(source, *tests).passed == [False] * 3


def test_decimals_cross_and_their_nan_is_seen() -> None:
    source = "from decimal import Decimal\ndef number(text):\n    return [Decimal(text)]\n"
    tests = (
        *("from decimal import Decimal\nassert number('1.5') == [Decimal('1.5')]", "assert number('banana') != 1"),
        *("assert not abs(number('NaN')[0] - 3) > 1", "assert number('nan')[0].is_nan()"),
    )
    assert judged(source, *tests).passed == [True, False, False, True]


def test_values_of_numpy_are_what_they_hold() -> None:
    pytest.importorskip("numpy")
    source = "import numpy as np\ndef total(items):\n    return np.sum(items)\ndef doubled(items):\n"
    source += "    return np.array(items) * 2\ndef positive(items):\n    return np.mean(items) > 0\n"
    tests = (
        *("assert total([1, 2]) == 3", "assert type(total([1.5])) is float", "assert positive([1]) is True"),
        *("assert doubled([1, 2]).tolist() == [2, 4]", "assert (doubled([1, 2]) == [2, 4]).all()"),
        *("import numpy as np\nassert np.allclose(doubled([0.5]), np.array([1]))", "assert total([1, 2]) == 4"),
    )
    assert judged(source, *tests).passed == [True] * 6 + [False]


def test_calls_share_one_process_and_tests_share_nothing() -> None:
    source = "n = 0\ndef count():\n    global n\n    n += 1\n    return n\n"
    found = judged(source, "x = 5\nassert count() == 1", "assert count() == 2", "count()\nassert x == 5")
    assert found.passed == [True, True, False]


@pytest.mark.parametrize(
    "test",
    [
        "CASES = dict(a={n})\n\ndef test_f():\n    assert square(2) == CASES['a']",
        "assert square(0) == 0\n\ndef test_f():\n    assert square(2) == {n}",
        "def test_g():\n    assert square(0) == 0\n\ndef test_f(x=2):\n    assert square(x) == {n}\n\ntest_g()",
        "class TestF:\n    def setup_method(self):\n        self.x = 2\n    def test_f(self):\n"
        "        assert square(self.x) == {n}",
        "class TestF:\n    @classmethod\n    def setup_class(cls):\n        cls.x = 2\n    def test_f(self):\n"
        "        assert square(self.x) == {n}\nassert square(0) == 0",
        "if __name__ == '__main__':\n    assert square(2) == {n}",
        "def main():\n    assert square(2) == {n}\n\nif __name__ == '__main__':\n    main()",
        "import unittest\nclass T(unittest.TestCase):\n    def setUp(self):\n        self.x = 2\n"
        "    def test_f(self):\n        self.assertEqual(square(self.x), {n})\n\n"
        "if __name__ == '__main__':\n    unittest.main()",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n"
        "        self.assertEqual(square(2), {n})\n"
        "unittest.main(argv=[''], exit=False)",
        "from unittest import TestCase, main\nclass T(TestCase):\n    def test_f(self):\n"
        "        assert square(2) == {n}\n"
        "main()",
        "import unittest\nclass Base(unittest.TestCase):\n    pass\nclass T(Base):\n    def test_f(self):\n"
        "        for x in (0, 2):\n            with self.subTest(x=x):\n                assert square(x) in (0, {n})",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n"
        "        self.assertEqual(square(2), {n})\n"
        "unittest.TextTestRunner().run(unittest.TestLoader().loadTestsFromTestCase(T))",
        "import unittest\nclass T(unittest.TestCase):\n    def test_f(self):\n"
        "        self.assertEqual(square(2), {n})\n"
        "T('test_f').run()",
    ],
)
def test_what_a_test_only_defines_is_run(test: str) -> None:
    assert judged(SOLUTION, test.format(n=4)).messages == ""
    assert judged(SOLUTION, test.format(n=5)).passed == [False]


def test_names_that_a_candidate_gives_a_meaning_mean_nothing_in_a_test() -> None:
    source = RIGHT + "def abs(x):\n    return 0\nlen = print = isinstance = abs\nclass math:\n    isclose = abs\n"
    source += "import builtins\nbuiltins.sum = builtins.all = lambda *a: True\ndef Counter(x):\n    return 3\n"
    tests = (
        *("assert abs(area(1) - 9) == 6", "assert abs(area(1) - 9) == 0", "assert math.isclose(area(1), 9)"),
        *("assert all([area(1) == 9])", "assert area(1) == Counter(a=1)", "assert isinstance(area(1), int)"),
    )
    assert judged(source, *tests).passed == [True, False, False, False, False, True]


def test_a_module_that_fails_is_told_with_its_traceback() -> None:
    found = judged(RIGHT + "\nraise ValueError('no')\n", *TESTS)
    assert found.passed == [False] * 3
    assert "The code doesn't run. ValueError: no" in found.messages
    assert found.candidate is not None
    assert found.candidate["message"] == "ValueError: no"
    assert "raise ValueError('no')" in found.candidate["traceback"]
    assert "candidate.py" not in found.candidate["traceback"]


def test_what_was_known_before_a_loop_stays() -> None:
    source = "def area(r):\n    while r == 2:\n        pass\n    return 3 * r * r\n"
    found = judged(source, *TESTS, seconds=2)
    assert found.passed == [True, False, False]
    assert "ended before area returned" in found.results[1].message
