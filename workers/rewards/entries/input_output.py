"""A reward for code that passes input/output tests: programs that read and print, and functions that return values.

Each test is an evaluation of its own in the sandbox, which gets the test's input only. What is expected stays in the
process that scores, so code can neither read nor change it.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass

from workers.contract.run.code_tests import InputOutputTest, unpack
from workers.rewards import outputs, sandboxed
from workers.rewards.parameters import param
from workers.rewards.reward import Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.sandboxed import RunParams
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome

ROUND = 4
"""Number of tests of a completion that run before it is decided whether the next ones do."""
NOT_RUN = "It wasn't run, because an earlier test failed."
MAX_NOTE_CHARS = 800
SETUP = """import bisect, collections, functools, heapq, itertools, math, operator, random, re, string, sys
from bisect import *
from collections import *
from functools import *
from heapq import *
from itertools import *
from math import ceil, floor, gcd, inf, sqrt
from typing import *"""
"""Imports that the functions of competition sites assume."""
CALL = """
from types import ModuleType
import sys

def call(source, name, args):
    module = sys.modules["solution"] = ModuleType("solution")
    exec(compile(source, "<solution>", "exec", dont_inherit=True), module.__dict__)
    function = module.__dict__.get(name)
    if function is None and hasattr(module.__dict__.get("Solution"), name):
        function = getattr(module.__dict__["Solution"](), name)
    if function is None:
        raise NameError(f"the code defines no function {name!r}")
    return function(**args) if isinstance(args, dict) else function(*args)
"""


@dataclass(frozen=True)
class InputOutputParams(RunParams):
    all_or_nothing: bool = param(
        False, "Score 1 if every test passes and 0 otherwise, instead of the share that passes."
    )
    compare: str = param(
        outputs.TOKEN_BY_TOKEN,
        "How to compare what a program prints. Tokens are separated by any white space; trailing white space is at the "
        "end of lines and of the output. Returned values are compared as values.",
        choices=(outputs.TOKEN_BY_TOKEN, outputs.TRIMMED_LINES, outputs.EXACT_TEXT),
    )
    tolerance: float = param(
        1e-6,
        "Allowed difference of a number with decimals, absolute or relative to the expected number, in tokens and "
        "returned values. Whole numbers must be equal.",
        min=0.0,
        max=0.1,
    )
    most_tests: int = param(
        20, "Maximum number of tests of a row to run: those with the longest inputs.", min=1, max=2_000
    )
    seconds: float = param(5.0, "Time limit for one test, in seconds.", min=0.1, max=300.0)
    memory_mb: int = param(256, "Memory limit for one test, in MiB.", min=16, max=16_384)
    output_kb: int = param(1_024, "Limit on what one test prints or returns, in KiB.", min=1, max=65_536)
    setup: str = param(
        SETUP,
        "Code to insert before the completion's code, in the same module, such as imports that the prompts assume.",
        widget="code",
        longest=10_000,
    )


def input_output_tests(
    completions: Sequence[Completion], rows: Sequence[Row], params: InputOutputParams, tools: Tools
) -> Scores:
    """Return the share of the row's input/output tests that the last code block passes (0 without code), or with
    `all_or_nothing` only 0 or 1. After a test that takes too long, no further ones are run, and they have not passed.
    Return None if the row has no such tests."""
    tests = [_tests(row, params.most_tests) for row in rows]
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    running = {index: code for index, code in enumerate(codes) if code and tests[index]}
    problems: list[list[str]] = [[] for _ in codes]
    troubled: dict[int, Outcome] = {}
    start = 0
    while running:
        jobs = {
            (index, number): _job(sandboxed.with_setup(code, params), tests[index][number])
            for index, code in running.items()
            for number in range(start, min(start + ROUND, len(tests[index])))
        }
        for (index, number), outcome in sandboxed.run_each(jobs, tools, _limits(params)).items():
            problems[index].append(_problem(outcome, tests[index], number, params))
            if outcome.trouble:
                troubled[index] = outcome
            if outcome.kind is Kind.TIMEOUT or outcome.trouble or (params.all_or_nothing and problems[index][-1]):
                running.pop(index, None)
        start += ROUND
        running = {index: code for index, code in running.items() if len(tests[index]) > start}
    values: list[float | None] = [
        _score(found, len(own), params) if own else None for found, own in zip(problems, tests, strict=True)
    ]
    notes = [
        ("" if not own else _note(found, len(own)) if code else "It has no code.")
        for found, own, code in zip(problems, tests, codes, strict=True)
    ]
    return Scores(values, sandboxed.without_trouble(troubled, values), notes)


def _tests(row: Row, max_tests: int) -> tuple[InputOutputTest, ...]:
    tests = row.get("test_cases")
    return _parsed(tuple(map(str, tests)), max_tests) if isinstance(tests, list | tuple) else ()


@functools.lru_cache(maxsize=16)
def _parsed(texts: tuple[str, ...], max_tests: int) -> tuple[InputOutputTest, ...]:
    tests = [test for text in texts if (test := unpack(text))]
    longest = sorted(range(len(tests)), key=lambda number: -_size(tests[number]))[:max_tests]
    return tuple(tests[number] for number in sorted(longest))


def _size(test: InputOutputTest) -> int:
    return len(json.dumps(test.args)) if test.call else len(test.stdin)


def _job(source: str, test: InputOutputTest) -> Job:
    if test.call:
        return Job(CALL, "call", (source, test.call, test.args))
    return sandboxed.program(source, test.stdin)


def _limits(params: InputOutputParams) -> Limits:
    size = params.output_kb * 1024
    return Limits(seconds=params.seconds, memory_mb=params.memory_mb, output_bytes=size, value_bytes=size)


def _problem(outcome: Outcome, tests: Sequence[InputOutputTest], number: int, params: InputOutputParams) -> str:
    """Return a sentence that says why a test failed, or "" if it passed."""
    test = tests[number]
    if ending := sandboxed.ending(outcome):
        return ending
    if not test.call:
        return outputs.difference(outcome.stdout, test.expected, params.compare, params.tolerance)
    expected_values = [test.expected]
    if all(isinstance(other.expected, list) and len(other.expected) == 1 for other in tests):
        expected_values.append(test.expected[0])  # some datasets put each returned value into a list
    if any(outputs.is_same_value(outcome.value, value, params.tolerance) for value in expected_values):
        return ""
    return f"{test.call} returns {outputs.quote(outcome.value)} instead of {outputs.quote(test.expected)}."


def _score(problems: Sequence[str], count: int, params: InputOutputParams) -> float:
    passed = problems.count("")
    return float(passed == count) if params.all_or_nothing else passed / count


def _note(problems: Sequence[str], count: int) -> str:
    """Return how many tests passed, and each test that didn't."""
    summary = f"{problems.count('')} of {count} tests passed."
    all_problems = [*problems, *[NOT_RUN] * (count - len(problems))]
    for number, problem in enumerate(all_problems, 1):
        if problem and len(summary) + len(problem) > MAX_NOTE_CHARS:
            return f"{summary} …"
        summary += f" Test {number}: {problem}" if problem else ""
    return summary


_SUMS = "```python\na, b = map(int, input().split())\nprint(a + b)\n```"
_DIFFERENCES = "```python\na, b = map(int, input().split())\nprint(a - b)\n```"
_PROGRAM_ROW = {"test_cases": ['{"stdin": "1 2\\n", "stdout": "3\\n"}', '{"stdin": "4 0\\n", "stdout": "4\\n"}']}
_CALL_ROW = {"test_cases": ['{"call": "halve", "args": [3], "returns": 1.5}']}

REWARDS = (
    Reward(
        key="input_output_tests",
        title="Input/output tests passed",
        help="The share of the row's input/output tests that the last code block passes: as a program that reads and "
        "prints, or as a function that returns a value.",
        params=InputOutputParams,
        batch=input_output_tests,
        cost=Cost.SANDBOX,
        needs=("test_cases",),
        low="No code, or no test passes.",
        high="Every test passes.",
        use="For datasets of competition problems such as APPS, TACO, DeepCoder or LiveCodeBench. Each test runs in a "
        "process of its own that knows only the test's input. Rows whose tests are Python code have no score; “Tests "
        "passed” is for them, and a config may use both.",
        examples=(
            Example(_SUMS, 1.0, _PROGRAM_ROW, why="It prints 3 and 4."),
            Example(_DIFFERENCES, 0.5, _PROGRAM_ROW, why="4 - 0 is 4 as well, so one of two tests passes."),
            Example(_DIFFERENCES, 0.0, _PROGRAM_ROW, {"all_or_nothing": True}, why="Only one of two tests passes."),
            Example("```python\ndef halve(n):\n    return n / 2\n```", 1.0, _CALL_ROW, why="It returns 1.5."),
            Example("```python\ndef halve(n):\n    return n // 2\n```", 0.0, _CALL_ROW, why="It returns 1."),
            Example(_SUMS, None, {"test_cases": ["assert add(1, 2) == 3"]}, why="The row's test is Python code."),
        ),
    ),
)
