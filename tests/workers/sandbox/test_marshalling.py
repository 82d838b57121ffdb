"""What is more than plain crosses between the two processes as itself, and no forged likeness passes."""

from __future__ import annotations

import textwrap

import pytest

from tests.workers.sandbox.cheats import FORGES, TESTS
from tests.workers.sandbox.forks import judged

MORE = textwrap.dedent(
    """
    import json, math, operator, statistics
    from collections import Counter, OrderedDict, defaultdict, deque

    def some(n):
        for i in range(n):
            yield i
        raise ValueError("no more")

    def fibonacci():
        a, b = 0, 1
        while True:
            yield a
            a, b = b, a + b

    def rotate(queue):
        queue.rotate(1)

    def tally(table, key):
        table[key] += 1

    def parsed(text):
        return json.loads(text)

    def mean(items):
        return statistics.mean(items)

    class Both(KeyError, ValueError):
        pass

    class Coded(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    def both():
        raise Both("x")

    def coded(n):
        raise Coded(n)

    def zeros(n):
        return bytearray(n)

    def letters(text):
        return Counter(text)

    def numbers():
        return defaultdict(int, a=1)

    def ordered():
        return OrderedDict([("b", 1), ("a", 2)])

    def apply(function, *args):
        return function(*args)

    def swap(items):
        items[0], items[1] = items[1], items[0]

    def grow(pair):
        pair[0].append(1)

    def replace(items):
        items[0] = ([5], 3)

    def same(x):
        return x

    def push(raw):
        raw.append(7)
    """
)

MORE_RIGHTLY = [
    "try:\n    list(some(2))\n    assert False\nexcept ValueError as error:\n    assert str(error) == 'no more'",
    "got = some(2)\nassert next(got) == 0 and next(got) == 1\ntry:\n    next(got)\n    assert False\n"
    "except ValueError:\n    pass",
    "got = fibonacci()\nassert [next(got) for _ in range(300)][:5] == [0, 1, 1, 2, 3]",
    "import inspect\nassert inspect.isgenerator(fibonacci())",
    "from collections import deque\nq = deque([1, 2, 3])\nrotate(q)\nassert list(q) == [3, 1, 2]",
    "from collections import defaultdict\nd = defaultdict(int)\ntally(d, 'a')\nassert d['a'] == 1 and d['b'] == 0",
    "c = Counter()\ntally(c, 'a')\nassert c['a'] == 1 and c['b'] == 0",
    "raw = bytearray(b'a')\npush(raw)\nassert raw == bytearray([97, 7])",
    "import json\ntry:\n    parsed('{')\n    assert False\n"
    "except json.JSONDecodeError as error:\n    assert error.pos == 1",
    "import statistics\ntry:\n    mean([])\n    assert False\nexcept statistics.StatisticsError:\n    pass",
    "try:\n    both()\n    assert False\nexcept ValueError as error:\n    assert isinstance(error, KeyError)",
    "try:\n    coded(7)\n    assert False\n"
    "except OSError:\n    raise\nexcept Exception as error:\n    assert error.code == 7 and str(error) == 'code 7'",
    "assert zeros(2) == bytearray(2) and isinstance(zeros(2), bytearray)",
    "assert letters('aab').most_common(1) == [('a', 2)] and letters('aab') - Counter('a') == Counter('ab')",
    "d = numbers()\nassert d['x'] == 0 and d['a'] == 1",
    "assert list(ordered()) == ['b', 'a'] and isinstance(ordered(), dict)",
    "import operator, math\nassert apply(operator.add, 1, 2) == 3 and apply(math.gcd, 4, 6) == 2",
    "x = [range(3), 1]\nswap(x)\nassert x == [1, range(3)]",
    "x = ([],)\ngrow(x)\nassert x == ([1],)",
    "x = [([1], 2)]\nreplace(x)\nassert x == [([5], 3)]",
    "assert same(slice(1, 2)) == slice(1, 2) and same(...) is ...",
    "from pathlib import Path\nassert same(Path('a')) == Path('a')",
]


def test_what_is_more_than_plain_crosses_as_itself(subtests: pytest.Subtests) -> None:
    for test in MORE_RIGHTLY:
        with subtests.test(test=test):
            assert judged(MORE, test).messages == ""


@pytest.mark.parametrize(
    "raised",
    [
        "{'name': 'SkipTest', 'text': '', 'bases': ['Exception'], 'library': ['unittest.case', 'SkipTest']}",
        "{'name': 'X', 'text': '', 'bases': ['StopIteration'], 'args': []}",
        "{'name': 'X', 'text': '', 'bases': ['ValueError', 'StopIteration', 'OSError'], 'args': []}",
        "{'name': 'system', 'text': '', 'bases': ['Exception'], 'library': ['os', 'system'], 'args': ['x']}",
        "{'name': 'X', 'text': '', 'bases': ['ValueError'], 'holds': {'m': {'__class__': 3, 'args': 4}}, 'args': [1]}",
        "{'name': 5, 'text': 5, 'bases': 5, 'library': [[], {}], 'holds': 5, 'args': 5}",
    ],
)
def test_no_forged_exception_passes(raised: str) -> None:
    source = FORGES + f"def area(r):\n    raised = {{'m': {raised}}}\n    forge(raised, 'raised')\n"
    case = "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(area(1), 3)"
    assert judged(source, *TESTS, case, "assert all(x == 3 for x in map(area, [1, 2]))").passed == [False] * 5


@pytest.mark.parametrize("function", ["['os', 'abort']", "['operator', 'call']", "['operator', '__call__']", "[[], 1]"])
def test_no_forged_function_arrives(function: str) -> None:
    source = FORGES + f"def area(r):\n    forge({{'function': {function}}})\n"
    assert judged(source, "assert callable(area(1)) or area(1) is not None").passed == [False]
