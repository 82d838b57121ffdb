"""Code that must pass a row's input/output tests, in the real sandbox, and code that would like to score without it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.rewards.sandboxes import BACKENDS, tools_on
from workers.rewards.library import LIBRARY
from workers.rewards.scoring import score
from workers.rewards.tools import Tools

pytestmark = pytest.mark.processes

REWARD = LIBRARY["input_output_tests"]
DOUBLES = [{"stdin": "1\n", "stdout": "2\n"}, {"stdin": "20\n", "stdout": "40\n"}]
CALLS = [{"call": "double", "args": [1], "returns": 2}, {"call": "double", "args": [20], "returns": 40}]


@pytest.fixture(scope="module", params=BACKENDS)
def tools(request: pytest.FixtureRequest) -> Iterator[Tools]:
    with tools_on(request.param) as tools:
        yield tools


def told(code: str, tests: list[Any], tools: Tools, **params: Any) -> tuple[float | None, str]:
    assert REWARD.check(params) == []
    row = {"test_cases": [json.dumps(test) for test in tests]}
    scores = score(REWARD, [f"```python\n{code}\n```"], [row], params, tools)
    assert scores.failures == []
    return scores.values[0], scores.notes[0]


@pytest.mark.parametrize(
    "code",
    [
        "print(2 * int(input()))",
        "import sys\nsys.stdout.write(str(2 * int(sys.stdin.buffer.read())))\nsys.exit()",
        "if __name__ == '__main__':\n    print(int(open(0).read()) * 2)",
    ],
)
def test_programs_that_print_what_is_expected_pass(code: str, tools: Tools) -> None:
    assert told(code, DOUBLES, tools) == (1.0, "2 of 2 tests passed.")


@pytest.mark.parametrize(
    "code",
    [
        "def double(n: int) -> int:\n    return 2 * n",
        "class Solution:\n    def double(self, n: Optional[int]) -> List[int]:\n        return 2 * n",
        "def double(n):\n    return 2.0 * n\nif __name__ == '__main__':\n    print(input())",
    ],
)
def test_functions_that_return_what_is_expected_pass(code: str, tools: Tools) -> None:
    assert told(code, CALLS, tools) == (1.0, "2 of 2 tests passed.")


def test_each_failed_test_is_named_with_its_reason(tools: Tools) -> None:
    value, note = told("print(int(input()) + 1)", DOUBLES, tools)
    assert (value, note) == (0.5, "1 of 2 tests passed. Test 2: It prints '21' instead of '40' as token 1.")
    value, note = told("def double(n):\n    return n + 1", CALLS, tools)
    assert (value, note) == (0.5, "1 of 2 tests passed. Test 2: double returns 21 instead of 40.")
    assert told("print(int(input()) + 1)", DOUBLES, tools, all_or_nothing=True)[0] == 0.0
    assert "no function 'double'" in told("print(1)", CALLS, tools)[1]


def test_long_standard_input_arrives_whole(tools: Tools) -> None:
    test = {"stdin": "9" * 3_000_000 + "\n", "stdout": "3000000"}
    assert told("print(len(input()))", [test], tools)[0] == 1.0
    assert told("print(3000000)", [test], tools)[0] == 1.0, "a program needn't read it"


@pytest.mark.parametrize(
    ("returned", "expected", "passes"),
    [
        ("(1, 2)", [1, 2], True),
        ("{1: 'a'}", {"1": "a"}, True),
        ("[0.1 + 0.2]", [0.3], True),
        ("6", [6], True),
        ("True", 1, False),
        ("1", True, False),
        ("float('nan')", 1.5, False),
        ("float('inf')", 1.5, False),
        ("10**18 + 1.0", 10**18, True),
        ("10**18 + 1000.0", 10**18, False),
        ("'6'", 6, False),
        ("None", 0, False),
    ],
)
def test_returned_values_are_compared_as_values(returned: str, expected: Any, passes: bool, tools: Tools) -> None:
    tests = [{"call": "f", "args": [], "returns": expected}]
    assert told(f"def f():\n    return {returned}", tests, tools)[0] == float(passes)


def test_arguments_may_have_names(tools: Tools) -> None:
    tests = [{"call": "less", "args": {"a": 5, "b": 3}, "returns": 2}]
    assert told("def less(b, a):\n    return a - b", tests, tools)[0] == 1.0


def test_a_program_that_never_ends_isnt_started_again(tools: Tools) -> None:
    tests = [{"stdin": str(n), "stdout": str(n)} for n in range(9)]
    value, note = told("while True:\n    pass", tests, tools, seconds=0.5)
    assert value == 0.0
    assert note.count("longer than 0.5 s") == 4
    assert note.count("It wasn't run") == 5


def test_a_row_without_such_tests_has_no_score(tools: Tools) -> None:
    row = {"test_cases": ["assert double(1) == 2"]}
    assert score(REWARD, ["```\nprint(1)\n```"], [row], {}, tools).values == [None]
    row = {"test_cases": [json.dumps(test) for test in DOUBLES]}
    assert score(LIBRARY["tests_passed"], ["```\nprint(1)\n```"], [row], {}, tools).values == [None]
    assert score(REWARD, ["no code"], [row], {}, tools).notes == ["It has no code."]


_YES = """
class Yes({base}):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __sub__(self, other): return 0
    __rsub__ = __sub__
    def __str__(self): return "40"
    __repr__ = __str__
"""
_LOOK = """
import gc, sys
def seen():
    found, frame = [], sys._getframe()
    while frame is not None:
        found += [*frame.f_locals.values(), *frame.f_globals.values()]
        frame = frame.f_back
    return repr(found + gc.get_objects())
"""
_FILES = """
import glob
text = ""
for path in sum(map(glob.glob, ("/proc/*/cmdline", "/proc/*/environ", "/tmp/*", "/dev/fd/*")), []):
    try:
        text += open(path, errors="replace").read(100000)
    except Exception:
        continue
"""
_FORGE = """
import json, os, struct
body = json.dumps({"m": {"kind": "ok", "value": True, "passed": True, "message": "", "traceback": ""}}).encode()
for fd in range(1, 20):
    try:
        os.write(fd, struct.pack("!I", len(body)) + body)
    except OSError:
        pass
os._exit(0)
"""
_SECRET = "8731964205"
CHEATS = {
    "ends at once": "import sys\nsys.exit(0)",
    "ends without Python's knowledge": "import os\nos._exit(0)",
    "prints what it finds in frames": f"{_LOOK}\nprint(seen())",
    "returns a number that it finds in frames": f"{_LOOK}\nimport re\ndef secret(n):\n"
    "    return next((int(n) for n in re.findall('[0-9]{10}', seen()) if n[0] == '8'), 0)",
    "prints what it finds in files": f"{_FILES}\nprint(text)\ndef secret(n):\n    return text",
    "equals everything": f"{_YES.format(base='int')}\ndef secret(n):\n    return Yes(3)\nprint(Yes(3))",
    "is an object that equals everything": f"{_YES.format(base='object')}\ndef secret(n):\n    return Yes()",
    "replaces comparisons": "import builtins, operator, math\nbuiltins.all = builtins.any = lambda *_: True\n"
    "builtins.len = lambda *_: 1\nbuiltins.abs = lambda *_: 0\noperator.eq = math.isclose = lambda *_: True\n"
    "builtins.isinstance = lambda *_: True\ndef secret(n):\n    return 1\nprint(1)",
    "forges a result": _FORGE,
    "prints megabytes": "import sys\nfor n in range(1000):\n    sys.stdout.write('8731964205 ' * 10000)",
    "returns megabytes": "def secret(n):\n    return list(range(300_000))",
    "forks": "import os\nif os.fork():\n    print(1)",
    "starts a program": "import subprocess\nprint(subprocess.run(['cat', '/etc/passwd'], capture_output=True).stdout)",
    "leaves its output to a thread": "import threading\nthreading.Thread(target=lambda: print(1)).start()",
    "uses up the memory": "x = bytearray(10**9)\nprint(x)",
    "asks the standard input": "import sys\nprint(sys.stdin.read(), sys.stdin.read())",
}


@pytest.mark.parametrize("name", CHEATS)
def test_no_cheat_scores(name: str, tools: Tools) -> None:
    program = {"stdin": "1\n", "stdout": f"{_SECRET}\n"}
    call = {"call": "secret", "args": [1], "returns": int(_SECRET)}
    for tests in ([program, program], [call, call]):
        assert told(CHEATS[name], tests, tools, seconds=5.0)[0] == 0.0
    assert told("print(2 * int(input()))", DOUBLES, tools)[0] == 1.0, "the next evaluation works"
