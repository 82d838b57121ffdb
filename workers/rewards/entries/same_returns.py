"""A reward for functions that return what the row's reference function returns, for rows without tests.

The reference is called in the sandbox with the row's own arguments or made-up ones, once for all completions of a
group; what it returns becomes input/output tests, which completions then have to pass.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from workers.contract.run.code_tests import InputOutputTest, pack
from workers.rewards import arguments, sandboxed
from workers.rewards.arguments import Function
from workers.rewards.entries.input_output import CALL, SETUP, InputOutputParams, input_output_tests
from workers.rewards.parameters import param
from workers.rewards.reward import Completion, Cost, Example, Failure, Reward, Row, Scores
from workers.rewards.sandboxed import CodeParams, RunParams
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Outcome

ENOUGH_CALLS = 3
"""Number of own arguments from which on none are made up."""
MIN_VALUES = 2
"""Number of different values that made-up arguments must give; otherwise a function that does nothing would pass."""
NO_ARGUMENTS = "No arguments could be made up for its parameters."
ADVICE = (
    "Give the row calls of the function: a column “inputs” with a list of arguments for each call, or examples in the "
    "prompt."
)
_TWICE = (
    CALL
    + """
import copy

def call_twice(source, name, args):
    first = call(source, name, copy.deepcopy(args))
    return [first, repr(first) == repr(call(source, name, copy.deepcopy(args)))]
"""
)
_REPRODUCIBLE_KINDS = (Kind.OK, Kind.ERROR, Kind.MEMORY, Kind.OUTPUT)


@dataclass(frozen=True)
class SameReturnsParams(RunParams):
    all_or_nothing: bool = param(
        False, "Score 1 if every call returns the same and 0 otherwise, instead of the share that does."
    )
    most_calls: int = param(10, "Maximum number of calls to compare.", min=1, max=arguments.MAX_CALLS)
    tolerance: float = param(
        1e-6,
        "Allowed difference of a number with decimals, absolute or relative to the expected one.",
        min=0.0,
        max=0.1,
    )
    seconds: float = param(5.0, "Time limit for one call, in seconds.", min=0.1, max=300.0)
    setup: str = param(
        SETUP,
        "Code to insert before the completion's code and the reference answer's, such as imports that the prompts "
        "assume.",
        widget="code",
        longest=10_000,
    )


def same_returns(
    completions: Sequence[Completion], rows: Sequence[Row], params: SameReturnsParams, tools: Tools
) -> Scores:
    """Return the share of calls for which the last code block's function returns what the row's reference answer
    returns (0 without code), or with `all_or_nothing` only 0 or 1. A row whose reference can't be called is a failure;
    a row without an answer has no score."""
    tested: dict[str, list[str] | Failure] = {}
    scored_rows, failures = list[Row](), list[Failure]()
    for index, row in enumerate(rows):
        answer = str(row.get("answer") or "")
        if not answer.strip():
            scored_rows.append({})
            continue
        key = f"{answer}\0{row.get('prompt')}\0{[row.get(name) for name in (*arguments.NAMES, *arguments.COLUMNS)]}"
        if key not in tested:
            tested[key] = _tests(answer, row, params, tools)
        tests = tested[key]
        if isinstance(tests, Failure):
            failures.append(replace(tests, index=index))
        scored_rows.append({} if isinstance(tests, Failure) else {"test_cases": tests})
    run = InputOutputParams(
        needs_block=params.needs_block,
        setup=params.setup,
        seconds=params.seconds,
        memory_mb=params.memory_mb,
        all_or_nothing=params.all_or_nothing,
        tolerance=params.tolerance,
    )
    scores = input_output_tests(completions, scored_rows, run, tools)
    return Scores(scores.values, [*failures, *scores.failures], scores.notes)


def _tests(answer: str, row: Row, params: SameReturnsParams, tools: Tools) -> list[str] | Failure:
    """Return the tests that the reference gives, or why there are none."""
    code = sandboxed.code_of(Completion(answer), CodeParams(needs_block=False))
    function = arguments.function_of(code, row) if code else None
    if code is None or function is None:
        return _failure("The row's reference answer defines no function, so there is nothing to call.", "")
    own = arguments.own_calls(function, row)
    key = ("same_returns", code, repr(own), function.name, params)
    cached: list[str] | Failure | None = tools.cached(key)
    if cached is not None:
        return cached
    source, problem, is_final = sandboxed.with_setup(code, params), NO_ARGUMENTS, True
    found = list[InputOutputTest]()
    attempts = [own, *([] if len(own) >= ENOUGH_CALLS else arguments.made_up_calls(function))]
    for calls in filter(None, attempts):
        tests, problem, is_same_always = _returned(source, function, calls, params, tools)
        is_final = is_final and is_same_always
        values = {pack(replace(test, args=())) for test in tests}
        if tests and (calls is own or found or len(values) >= MIN_VALUES):
            found += tests
            if calls is not own:
                break
        elif tests:
            problem = f"{function.name} returns the same for all made-up arguments."
    tests_of_row = list(dict.fromkeys(map(pack, found)))[: params.most_calls]
    result = tests_of_row or _failure(f"The row's reference can't be compared with. {problem}", ADVICE)
    if is_final:
        tools.cache(key, result)
    return result


def _returned(
    source: str, function: Function, calls: Sequence[Any], params: SameReturnsParams, tools: Tools
) -> tuple[list[InputOutputTest], str, bool]:
    """Call the reference. Return the calls with their values, why others have none, and whether it would be the same
    again."""
    jobs = {number: Job(_TWICE, "call_twice", (source, function.name, call)) for number, call in enumerate(calls)}
    outcomes = sandboxed.run_each(jobs, tools, sandboxed.limits_of(params))
    tests, problem = list[InputOutputTest](), ""
    for number, outcome in outcomes.items():
        test, reason = _test(function.name, calls[number], outcome)
        problem = reason or problem
        tests += [test] if test else []
    return tests, problem, all(outcome.kind in _REPRODUCIBLE_KINDS for outcome in outcomes.values())


def _test(name: str, call: Any, outcome: Outcome) -> tuple[InputOutputTest | None, str]:
    if ending := sandboxed.ending(outcome):
        return None, ending
    value, is_repeatable = (
        outcome.value if isinstance(outcome.value, list) and len(outcome.value) == 2 else (None, True)
    )
    if not is_repeatable:
        return None, f"{name} returns something else each time."
    if value is None:
        return None, f"{name} returns nothing."
    test = InputOutputTest(value, call=name, args=call)
    try:
        pack(test)
    except (ValueError, TypeError, RecursionError):
        return None, f"{name} returns a value that isn't plain."
    return test, ""


def _failure(message: str, advice: str) -> Failure:
    return Failure(0, "error", re.sub(r"\s+", " ", f"{message} {advice}").strip()[:500])


_TWICE_ROW = {"answer": "def double(n: int) -> int:\n    return 2 * n"}
_JOIN_ROW = {"answer": "def join(words):\n    return '-'.join(words)", "inputs": [[["a", "b"]], [["c"]], [["d", "e"]]]}

REWARDS = (
    Reward(
        key="same_returns",
        title="Returns what the reference returns",
        help="The share of calls for which the last code block's function returns what the row's reference function "
        "returns.",
        params=SameReturnsParams,
        batch=same_returns,
        cost=Cost.SANDBOX,
        needs=("answer",),
        low="No code, no function of that name, or no call returns the same.",
        high="Every call returns the same.",
        use="For rows without tests whose reference solution defines a function. It is called with the row's "
        "arguments (a column “inputs”, “args” or “examples”, or calls in the prompt) and, if these are fewer than "
        "three, also with values made up from its annotations. A row whose function can't be called is a failure and "
        "has no score, so check the dataset's answers first.",
        examples=(
            Example("```python\ndef double(n):\n    return n + n\n```", 1.0, _TWICE_ROW, why="It doubles any number."),
            Example("```python\ndef double(n):\n    return n\n```", 0.0, _TWICE_ROW, why="It returns 3 for 3, not 6."),
            Example("```python\ndef join(words):\n    return words[0]\n```", 1 / 3, _JOIN_ROW,
                    why="It is right for one word, so for one of the row's three inputs."),
            Example("```python\nprint(6)\n```", 0.0, _TWICE_ROW, why="The code defines no function double."),
        ),
    ),
)  # fmt: skip
