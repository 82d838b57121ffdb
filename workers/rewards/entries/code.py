"""Rewards for code that parses, runs, passes the row's tests or is tidy. All of them use the sandbox.

A program that hangs, floods its output or crashes gets a low score; only a missing or failing sandbox is a failure of
the reward.
"""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from workers.contract.run.code_tests import unpack
from workers.rewards import sandboxed
from workers.rewards.parameters import param
from workers.rewards.reward import Completion, Cost, Example, Failure, Reward, Row, Scores
from workers.rewards.sandboxed import CodeParams, RunParams
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome, Program, TestJob, TestOutcome
from workers.sandbox.requirements.syntax import is_too_deep

MAX_LINE_TOKENS = 2_000
"""Maximum number of operators, dots and brackets in one line; each may be a level of recursion in the parser."""
PARSER = """
import ast, warnings

def parses(code):
    warnings.simplefilter("ignore")
    try:
        return bool(ast.parse(code).body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
"""
RULES = re.compile(r"[A-Z]+[0-9]*(,[A-Z]+[0-9]*)*")
SCALES = ("0 to 1", "minus the count")
RUFF_LIMITS = Limits(seconds=20.0, memory_mb=1_024, disk_mb=0)


@dataclass(frozen=True)
class PythonSyntaxParams(CodeParams):
    wrong_score: float = param(0.0, "Score if the code doesn't parse or there is none.", min=-1.0, max=1.0)


@dataclass(frozen=True)
class PythonExecutesParams(RunParams):
    wrong_score: float = param(0.0, "Score if the code fails or there is none.", min=-1.0, max=1.0)


@dataclass(frozen=True)
class TestsPassedParams(RunParams):
    all_or_nothing: bool = param(
        False, "Score 1 if every test passes and 0 otherwise, instead of the share that passes."
    )


def _rules_problem(rules: str) -> str:
    return "" if RULES.fullmatch(rules) else "must be comma-separated prefixes of ruff rules, such as E,F,W"


@dataclass(frozen=True)
class PythonStyleParams(CodeParams):
    rules: str = param(
        "E,F,W", "The ruff rules to check, as comma-separated prefixes such as E,F,W,B,SIM.", rule=_rules_problem
    )
    line_length: int = param(100, "Maximum line length, in characters.", min=20, max=320)
    scale: str = param(
        "0 to 1", "1 without findings, falling linearly to 0; or minus the number of findings.", choices=SCALES
    )
    most: int = param(10, "Number of findings at which the score reaches its lowest value.", min=1, max=1_000)


def python_syntax(
    completions: Sequence[Completion], rows: Sequence[Row], params: PythonSyntaxParams, tools: Tools
) -> Scores:
    """Return 1 if the last code block parses as Python, or `wrong_score` (0) if it doesn't, is empty, is nested too
    deeply or is missing. The code is never run."""
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    jobs = {
        index: Job(PARSER, "parses", (code,)) for index, code in enumerate(codes) if code and _is_safe_to_parse(code)
    }
    outcomes = sandboxed.run_each(jobs, tools, Limits(disk_mb=0))
    parsed_indexes = {index for index, outcome in outcomes.items() if outcome.kind is Kind.OK and outcome.value is True}
    values: list[float | None] = [1.0 if index in parsed_indexes else params.wrong_score for index in range(len(codes))]
    return Scores(values, sandboxed.without_trouble(outcomes, values))


def python_executes(
    completions: Sequence[Completion], rows: Sequence[Row], params: PythonExecutesParams, tools: Tools
) -> Scores:
    """Return 1 if the last code block runs to its end within its time and memory limits, or `wrong_score` (0) if it
    raises an exception, exits, exceeds a limit or is missing."""
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    jobs = {index: Job(sandboxed.with_setup(code, params)) for index, code in enumerate(codes) if code}
    outcomes = sandboxed.run_each(jobs, tools, sandboxed.limits_of(params))
    notes = [
        sandboxed.ending(outcomes[index]) if index in outcomes else "It has no code." for index in range(len(codes))
    ]
    values: list[float | None] = [params.wrong_score if note else 1.0 for note in notes]
    return Scores(values, sandboxed.without_trouble(outcomes, values), notes)


def tests_passed(
    completions: Sequence[Completion], rows: Sequence[Row], params: TestsPassedParams, tools: Tools
) -> Scores:
    """Return the share of the row's test_cases that the last code block passes (0 without code), or with
    `all_or_nothing` only 0 or 1. A test without a result has not passed. Return None if the row has no tests in
    Python; input/output tests are for another reward."""
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    tests = [_tests(row) for row in rows]
    values: list[float | None] = [0.0 if row_tests else None for row_tests in tests]
    notes = ["It has no code." if row_tests else "" for row_tests in tests]
    jobs = {
        i: TestJob(sandboxed.with_setup(code, params), tests[i]) for i, code in enumerate(codes) if code and tests[i]
    }
    outcomes = sandboxed.sandbox(tools).test(list(jobs.values()), sandboxed.limits_of(params)) if jobs else []
    for index, outcome in zip(jobs, outcomes, strict=True):
        count = len(tests[index])
        # Relative to the row's own tests: a test without a result has not passed.
        passed_count = min(outcome.passed, count)
        values[index] = float(passed_count == count) if params.all_or_nothing else passed_count / count
        notes[index] = _summary(outcome, passed_count, count)
    candidates = {index: outcome.candidate for index, outcome in zip(jobs, outcomes, strict=True)}
    return Scores(values, sandboxed.without_trouble(candidates, values), notes)


def python_style(
    completions: Sequence[Completion], rows: Sequence[Row], params: PythonStyleParams, tools: Tools
) -> Scores:
    """Return a score from 0 to 1, or from `-most` to 0 if the scale is "minus the count". It is highest if ruff finds
    nothing in the last code block, and each finding costs the same. It is lowest for `most` or more findings, for code
    that doesn't parse or that ruff can't read, and without code."""
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    argv = _ruff(params)
    jobs = {index: Program(argv, stdin=code) for index, code in enumerate(codes) if code}
    outcomes = sandboxed.run_each(jobs, tools, RUFF_LIMITS)
    ruff_works = _ruff_works(argv, outcomes, tools)
    worst_score = _style_range(params)[0]
    values: list[float | None] = [worst_score] * len(codes)
    notes = ["It has no code."] * len(codes)
    failures: list[Failure] = []
    for index, outcome in outcomes.items():
        findings = _findings(outcome)
        if findings is None and (outcome.trouble or not ruff_works):
            values[index], notes[index] = None, ""
            failures.append(_ruff_failure(index, outcome))
        elif findings is None:
            notes[index] = f"Ruff can't read it: {sandboxed.ending(outcome) or 'it exited without findings.'}"
        elif None in findings:
            notes[index] = "It doesn't parse."
        else:
            count = sum(findings.values())
            penalty = float(min(count, params.most))
            values[index] = -penalty if params.scale == "minus the count" else 1.0 - penalty / params.most
            notes[index] = ", ".join(f"{code}: {times}" for code, times in list(findings.items())[:20])
    return Scores(values, failures, notes)


def _is_safe_to_parse(code: str) -> bool:
    if is_too_deep(code):
        return False
    return all(sum(line.count(sign) for sign in "+-*/%@.~<>=([{:") <= MAX_LINE_TOKENS for line in code.split("\n"))


def _tests(row: Row) -> tuple[str, ...]:
    tests = row.get("test_cases")
    if isinstance(tests, str):
        tests = [tests]
    texts = [str(test) for test in tests] if isinstance(tests, list | tuple) else []
    return tuple(text for text in texts if text.strip() and unpack(text) is None)


def _summary(outcome: TestOutcome, passed: int, count: int) -> str:
    summary = f"{passed} of {count} tests passed"
    if passed == count:
        return f"{summary}."
    failed_test = next((result for result in outcome.results if not result.passed), None)
    problem = (failed_test.needs or failed_test.message) if failed_test else ""
    return f"{summary}: {(problem or sandboxed.ending(outcome.candidate) or 'there was no result')[:300]}"


def _ruff(params: PythonStyleParams) -> tuple[str, ...]:
    from ruff import find_ruff_bin  # type: ignore[import-untyped]

    # These options ignore suppression comments and configuration files.
    options = "--isolated", "--no-cache", "--ignore-noqa", "--quiet", "--statistics", "--output-format=json"
    version, width = f"--target-version=py3{sys.version_info.minor}", f"--line-length={params.line_length}"
    rules = f"--select={params.rules}"
    return str(find_ruff_bin()), "check", *options, width, version, rules, "--stdin-filename=code.py", "-"


def _ruff_works(argv: tuple[str, ...], outcomes: dict[int, Outcome], tools: Tools) -> bool:
    """Return whether ruff has read all of the code or can at least read an empty file. Deeply nested code can crash a
    working ruff, and then gets the lowest score."""
    if all(_findings(outcome) is not None for outcome in outcomes.values()):
        return True
    return _findings(sandboxed.run_each({0: Program(argv)}, tools, RUFF_LIMITS)[0]) is not None


def _findings(outcome: Outcome) -> dict[str | None, int] | None:
    """Return the number of findings by rule, with the key None for invalid Python, or None if ruff itself failed."""
    if outcome.kind is not Kind.OK or outcome.value not in (0, 1):
        return None
    try:
        return {rule["code"]: int(rule["count"]) for rule in json.loads(outcome.stdout or "[]")}
    except (ValueError, TypeError, KeyError):
        return None


def _ruff_failure(index: int, outcome: Outcome) -> Failure:
    if outcome.kind is not Kind.OK:
        return sandboxed.failure(index, outcome)
    stderr = " ".join(outcome.stderr.split())[-300:]
    return Failure(index, "error", f"ruff exited with code {outcome.value}: {stderr}")


def _style_range(params: PythonStyleParams) -> tuple[float, float]:
    return (-float(params.most), 0.0) if params.scale == "minus the count" else (0.0, 1.0)


def _range_with_wrong_score(params: PythonSyntaxParams | PythonExecutesParams) -> tuple[float, float]:
    return min(params.wrong_score, 1.0), 1.0


_ADDING_ANSWER = "```python\ndef add(a, b):\n    return a + b\n```"
_SUBTRACTING_ANSWER = "```python\ndef add(a, b):\n    return a - b\n```"
_TESTS = {"test_cases": ["assert add(1, 2) == 3", "assert add(0, 0) == 0"]}

REWARDS = (
    Reward(
        key="python_syntax",
        title="Python that parses",
        help="1 if the last code block is valid Python. Only the syntax is checked; the code is never run.",
        params=PythonSyntaxParams,
        range_of=_range_with_wrong_score,
        batch=python_syntax,
        cost=Cost.SANDBOX,
        low="No code, or code that isn't valid Python.",
        high="The code parses, whatever it does.",
        use="Early in training a base model, together with a reward for what the code does. A good model soon always "
        "earns 1.",
        examples=(
            Example(_ADDING_ANSWER, 1.0, why="The block is one function definition."),
            Example("```python\ndef add(a, b)\n    return a + b\n```", 0.0, why="The colon after the name is missing."),
        ),
    ),
    Reward(
        key="python_executes",
        title="Python that runs",
        help="1 if the last code block runs to its end without an exception, within its time and memory limits.",
        params=PythonExecutesParams,
        range_of=_range_with_wrong_score,
        batch=python_executes,
        cost=Cost.SANDBOX,
        low="No code, an exception, a call to exit, or an exceeded limit.",
        high="The code ran to its end.",
        use="For rows without tests. Code that only defines functions also passes, so this reward says little on its "
        "own.",
        examples=(
            Example("```python\nprint(sum(range(10)))\n```", 1.0, why="It prints 45 and finishes."),
            Example("```python\nprint(1 / 0)\n```", 0.0, why="It raises ZeroDivisionError."),
            Example("```python\nwhile True:\n    pass\n```", 0.0, params={"seconds": 1.0}, why="It never ends."),
        ),
    ),
    Reward(
        key="tests_passed",
        title="Tests passed",
        help="The share of the row's test_cases that the last code block passes.",
        params=TestsPassedParams,
        batch=tests_passed,
        cost=Cost.SANDBOX,
        needs=("test_cases",),
        low="No code, or no test passes.",
        high="Every test passes.",
        use="For tasks with tests, such as MBPP. Tests run in a separate process that calls the code's functions with "
        "plain values. A test that needs more than that is reported when the dataset is validated and never passes.",
        examples=(
            Example(_ADDING_ANSWER, 1.0, _TESTS, why="Both tests pass."),
            Example(_SUBTRACTING_ANSWER, 0.5, _TESTS, why="0 - 0 is 0 as well, so one of two tests passes."),
            Example(
                _SUBTRACTING_ANSWER, 0.0, _TESTS, {"all_or_nothing": True}, why="Only one of the two tests passes."
            ),
            Example("```python\nimport sys\nsys.exit(0)\n```", 0.0, _TESTS, why="An early exit passes nothing."),
        ),
    ),
    Reward(
        key="python_style",
        title="Lint score",
        help="Decreases with the number of ruff findings in the last code block.",
        params=PythonStyleParams,
        range_of=_style_range,
        batch=python_style,
        cost=Cost.SANDBOX,
        low="No code, code that doesn't parse, or the maximum number of findings.",
        high="No findings.",
        use="With a small weight, together with tests: short code has few findings whatever it does. Comments that "
        "turn rules off are ignored.",
        examples=(
            Example(_ADDING_ANSWER, 1.0, why="Ruff finds nothing."),
            Example("```python\nimport os\nx = 1;\n```", 0.8, why="F401 and E703: two findings out of ten."),
            Example("```python\nimport os\n```", -1.0, params={"scale": "minus the count"}, why="One unused import."),
        ),
    ),
)
