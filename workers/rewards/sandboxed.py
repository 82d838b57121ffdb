"""Shared parts of rewards that run code: their sandbox, and the effect of a program's end on the score."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from workers.rewards.extract import last_code_block
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Failure
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome, Program
from workers.sandbox.pool import Sandbox

KeyT = TypeVar("KeyT")

LONGEST_SOURCE = 50_000
PRELOADED = (
    "ast", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "textwrap",
    "typing",
)  # fmt: skip
"""Common imports, already loaded in the sandbox's prewarmed interpreter."""


def sandbox(tools: Tools) -> Sandbox:
    """Return the sandbox that all rewards share. Raises SandboxUnavailable."""
    return tools.sandbox(*PRELOADED)


@dataclass(frozen=True)
class CodeParams(Params):
    """Parameters: where a completion's code is."""

    needs_block: bool = param(True, "Only a fenced ``` block counts; otherwise a text without one is read whole.")


@dataclass(frozen=True)
class RunParams(CodeParams):
    """Parameters: how the code is run."""

    setup: str = param(
        "",
        "Put before the completion's code, in the same module: imports that the prompts take for granted.",
        widget="code",
        longest=10_000,
    )
    seconds: float = param(5.0, "Time for one completion.", min=0.1, max=300.0)
    memory_mb: int = param(256, "Memory for one completion, in MiB.", min=16, max=16_384)


def code_of(completion: Completion, params: CodeParams) -> str | None:
    """Return the completion's code; None if there is none or too much."""
    code = last_code_block(completion.text)
    if code is None and not params.needs_block:
        code = completion.text
    return None if code is None or len(code) > LONGEST_SOURCE or not code.strip() else code


def with_setup(code: str, params: RunParams) -> str:
    return f"{params.setup}\n{code}" if params.setup.strip() else code


def limits_of(params: RunParams) -> Limits:
    return Limits(seconds=params.seconds, memory_mb=params.memory_mb)


def run_each(jobs: Mapping[KeyT, Job | Program], tools: Tools, limits: Limits) -> dict[KeyT, Outcome]:
    """Run jobs, and return their outcomes by key. No sandbox is opened without jobs."""
    outcomes = sandbox(tools).run(list(jobs.values()), limits) if jobs else []
    return dict(zip(jobs, outcomes, strict=True))


def failure(index: int, outcome: Outcome) -> Failure:
    """Return the failure of an evaluation that failed for a reason other than the model's code."""
    return Failure(index, str(outcome.kind), outcome.ending[:500], outcome.traceback[-4_000:])


def without_trouble(outcomes: Mapping[int, Outcome], values: list[float | None]) -> list[Failure]:
    """Remove scores where the sandbox itself failed; return a failure for each.

    Only for failures that code can't cause to avoid a 0: the zygote ended or hung, or no process could be created. The
    verifier's end doesn't count, because a candidate's values can exhaust its memory and time. (Without seccomp, a
    candidate could end the zygote; it could also do anything else.)
    """
    failures = [failure(index, outcome) for index, outcome in outcomes.items() if outcome.trouble]
    for failed in failures:
        values[failed.index] = None
    return failures


def ending(outcome: Outcome) -> str:
    """Return a sentence about the end of the model's code; "" if it ended without an error."""
    return "" if outcome.kind is Kind.OK else outcome.ending[:300]
