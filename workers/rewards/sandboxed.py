"""Shared parts of rewards that run code: their sandbox, and how a program's exit affects the score."""

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

MAX_SOURCE_LENGTH = 50_000
PRELOADED_MODULES = (
    "ast", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "textwrap",
    "typing",
)  # fmt: skip
"""Common imports, already loaded in the sandbox's prewarmed interpreter."""


_PROGRAM = """
import builtins, sys
from types import ModuleType

def run(source):
    builtins.exit = builtins.quit = sys.exit
    program = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(compile(source, "<program>", "exec", dont_inherit=True), program.__dict__)
    except SystemExit as end:
        if end.code not in (None, 0):
            raise
"""


def sandbox(tools: Tools) -> Sandbox:
    """Return the sandbox shared by all rewards. Raises SandboxUnavailable if it can't be started."""
    return tools.sandbox(*PRELOADED_MODULES)


@dataclass(frozen=True)
class CodeParams(Params):
    """Parameters that say where a completion's code is."""

    needs_block: bool = param(
        True, "Use only code in a fenced ``` block; otherwise a completion without a block is treated as code."
    )


@dataclass(frozen=True)
class RunParams(CodeParams):
    """Parameters that say how the code is run."""

    setup: str = param(
        "",
        "Code to insert before the completion's code, in the same module, such as imports that the prompts assume.",
        widget="code",
        longest=10_000,
    )
    seconds: float = param(5.0, "Time limit for one completion, in seconds.", min=0.1, max=300.0)
    memory_mb: int = param(256, "Memory limit for one completion, in MiB.", min=16, max=16_384)


def code_of(completion: Completion, params: CodeParams) -> str | None:
    """Return the completion's code, or None if there is none or it is too long."""
    code = last_code_block(completion.text)
    if code is None and not params.needs_block:
        code = completion.text
    return None if code is None or len(code) > MAX_SOURCE_LENGTH or not code.strip() else code


def with_setup(code: str, params: RunParams) -> str:
    return f"{params.setup}\n{code}" if params.setup.strip() else code


def limits_of(params: RunParams) -> Limits:
    return Limits(seconds=params.seconds, memory_mb=params.memory_mb)


def program(source: str, stdin: str) -> Job:
    """Return a job that runs a whole program with standard input. It may end with sys.exit(0)."""
    return Job(_PROGRAM, "run", (source,), stdin)


def run_each(jobs: Mapping[KeyT, Job | Program], tools: Tools, limits: Limits) -> dict[KeyT, Outcome]:
    """Run jobs and return their outcomes by key. If there are no jobs, no sandbox is opened."""
    outcomes = sandbox(tools).run(list(jobs.values()), limits) if jobs else []
    return dict(zip(jobs, outcomes, strict=True))


def failure(index: int, outcome: Outcome) -> Failure:
    """Convert an outcome other than OK into the Failure of the completion at `index`."""
    return Failure(index, str(outcome.kind), outcome.ending[:500], outcome.traceback[-4_000:])


def without_trouble(outcomes: Mapping[int, Outcome], values: list[float | None]) -> list[Failure]:
    """Set the scores to None where the sandbox itself failed, and return a Failure for each of them.

    This is only for failures that code can't cause on purpose to avoid a 0: the zygote exited or hung, or no process
    could be created. A failed verifier is not among them, because a candidate's values can exhaust its memory and time.
    (Without seccomp, a candidate could kill the zygote, but it could also do anything else.)
    """
    failures = [failure(index, outcome) for index, outcome in outcomes.items() if outcome.trouble]
    for failed in failures:
        values[failed.index] = None
    return failures


def ending(outcome: Outcome) -> str:
    """Return a sentence that says how the model's code failed, or "" if it ran without an error."""
    return "" if outcome.kind is Kind.OK else outcome.ending[:300]
