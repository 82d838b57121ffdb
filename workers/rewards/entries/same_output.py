"""A reward for code that prints what the row's reference answer prints, for rows with an answer but no tests.

Both run as programs in the sandbox. The reference answer runs once for all completions of a group, and its output is
cached for later batches.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from workers.rewards import outputs, sandboxed
from workers.rewards.parameters import param
from workers.rewards.reward import Completion, Cost, Example, Failure, Reward, Row, Scores
from workers.rewards.sandboxed import CodeParams, RunParams
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Outcome

COMPARISONS = (outputs.TRIMMED_LINES, outputs.EXACT_TEXT, outputs.TOKEN_BY_TOKEN)
TESTS_ARE_NEEDED = (
    "It defines functions, but this reward compares only printed output: use “Returns what the reference returns”, or "
    "add test_cases."
)
_DEFINITION = re.compile(r"^[ \t]*+(async\s+def|def|class)\s", re.MULTILINE)
_REPRODUCIBLE_KINDS = (Kind.OK, Kind.ERROR, Kind.MEMORY, Kind.OUTPUT)
"""Outcomes that don't depend on how busy the machine is; only these are cached for later batches."""


@dataclass(frozen=True)
class SameOutputParams(RunParams):
    setup: str = param(
        "",
        "Code to insert before the completion's code and the reference answer's, such as imports that the prompts "
        "assume.",
        widget="code",
        longest=10_000,
    )
    standard_input: str = param("", "Standard input of both programs.", widget="text", longest=10_000)
    compare: str = param(
        COMPARISONS[0],
        "How to compare the outputs. Trailing white space is white space at the end of lines and empty lines at the "
        "end; tokens are separated by any white space.",
        choices=COMPARISONS,
    )


def same_output(
    completions: Sequence[Completion], rows: Sequence[Row], params: SameOutputParams, tools: Tools
) -> Scores:
    """Run the last code block as a program and return 1 if it prints what the row's answer prints, or 0 if it prints
    something else, fails, exits with a code other than 0, exceeds a limit or is missing. A row whose answer fails or
    prints nothing is a failure; a row without an answer has no score."""
    sources = [_reference_source(row, params) for row in rows]
    references = _references([source for source in sources if source], params, tools)
    codes = [sandboxed.code_of(completion, params) for completion in completions]
    values: list[float | None] = [None] * len(codes)
    notes = [""] * len(codes)
    failures: list[Failure] = []
    jobs: dict[int, Job] = {}
    expected: dict[int, str] = {}
    for index, (source, code) in enumerate(zip(sources, codes, strict=True)):
        if source is None:
            continue
        reference = references[source]
        if isinstance(reference, Failure):
            failures.append(replace(reference, index=index))
        elif code is None:
            values[index], notes[index] = 0.0, "It has no code."
        else:
            program = sandboxed.program(sandboxed.with_setup(code, params), params.standard_input)
            jobs[index], expected[index] = program, reference
    outcomes = sandboxed.run_each(jobs, tools, sandboxed.limits_of(params))
    for index, outcome in outcomes.items():
        notes[index] = sandboxed.ending(outcome) or outputs.difference(outcome.stdout, expected[index], params.compare)
        values[index] = 0.0 if notes[index] else 1.0
    return Scores(values, failures + sandboxed.without_trouble(outcomes, values), notes)


def _reference_source(row: Row, params: SameOutputParams) -> str | None:
    """Return the code of the row's answer, with or without a fence: "" if the answer has no code, None if the row has
    no answer."""
    answer = row.get("answer")
    if answer is None or not str(answer).strip():
        return None
    code = sandboxed.code_of(Completion(str(answer)), CodeParams(needs_block=False))
    return sandboxed.with_setup(code, params) if code else ""


def _references(sources: Sequence[str], params: SameOutputParams, tools: Tools) -> dict[str, str | Failure]:
    """Run each distinct source whose result isn't cached. Return what each source prints, or why completions can't be
    compared with it; the source "" represents answers without code."""
    no_code = f"The row's reference answer has no code, or more than {sandboxed.MAX_SOURCE_LENGTH:,} characters."
    references: dict[str, str | Failure] = {"": Failure(0, "error", no_code)}
    keys = {
        source: ("same_output", source, params.standard_input, sandboxed.limits_of(params))
        for source in sources
        if source
    }
    references |= {source: output for source, key in keys.items() if (output := tools.cached(key)) is not None}
    new_sources = {
        source: sandboxed.program(source, params.standard_input) for source in keys if source not in references
    }
    for source, outcome in sandboxed.run_each(new_sources, tools, sandboxed.limits_of(params)).items():
        references[source] = _reference(source, outcome)
        if outcome.kind in _REPRODUCIBLE_KINDS:
            tools.cache(keys[source], references[source])
    return references


def _reference(source: str, outcome: Outcome) -> str | Failure:
    if outcome.trouble:
        return sandboxed.failure(0, outcome)
    if outcome.kind is not Kind.OK:
        failure = sandboxed.failure(0, outcome)
        message = f"The row's reference answer fails, so it has no score. {failure.message}"
        return replace(failure, message=message[:500])
    if not outcome.stdout.strip():
        message = "The row's reference answer prints nothing, so it has no score."
        return Failure(0, "error", f"{message} {TESTS_ARE_NEEDED}" if _DEFINITION.search(source) else message)
    return outcome.stdout


_SUM = "```python\nprint(sum(range(10)))\n```"
_ROW = {"answer": "total = 0\nfor n in range(10):\n    total += n\nprint(total)"}
_DOUBLING_ROW = {"answer": "print(2 * int(input()))"}

REWARDS = (
    Reward(
        key="same_output",
        title="Prints what the reference prints",
        help="1 if the last code block, run as a program, prints what the row's reference answer prints.",
        params=SameOutputParams,
        batch=same_output,
        cost=Cost.SANDBOX,
        needs=("answer",),
        low="No code, an exception, an exceeded limit, or a different output.",
        high="The code runs without an error and prints the same.",
        use="For programs with a reference answer but no tests. Only printed output is compared: for code that only "
        "defines functions, use “Returns what the reference returns” or tests. An answer that prints the time or "
        "random numbers matches nothing. A row whose answer fails or prints nothing is a failure and has no score, so "
        "check the dataset's answers first.",
        examples=(
            Example(_SUM, 1.0, _ROW, why="Both print 45, however they compute it."),
            Example("```python\nprint(sum(range(11)))\n```", 0.0, _ROW, why="It prints 55; the reference prints 45."),
            Example("```python\nn = int(input())\nprint(n + n)\n```", 1.0, _DOUBLING_ROW, {"standard_input": "21\n"},
                    why="Both read 21 and print 42."),
            Example("```python\nprint(45, end='')\n```", 0.0, _ROW, {"compare": "exactly"},
                    why="The line break is missing."),
        ),
    ),
)  # fmt: skip
