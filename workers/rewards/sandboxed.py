"""What rewards that run code share: the sandbox they ask, and what an evaluation's end means for a score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workers.rewards.extract import last_code_block
from workers.rewards.reward import Completion, Failure, Params, param
from workers.rewards.tools import Tools
from workers.sandbox import Kind, Outcome, Sandbox

LONGEST_SOURCE = 50_000
PRELOADED = (
    "ast", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools",
    "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string", "textwrap",
    "typing",
)  # fmt: skip
"""What programs import as a rule: the sandbox's prewarmed interpreter has it already."""

_WORDS = {
    Kind.ERROR: "error",
    Kind.TIMEOUT: "timeout",
    Kind.MEMORY: "memory",
    Kind.OUTPUT: "output",
    Kind.KILLED: "killed",
}


def sandbox(tools: Tools) -> Sandbox:
    """One for all rewards that run code. Raises SandboxUnavailable."""
    return tools.sandbox(*PRELOADED)


@dataclass(frozen=True)
class CodeParams(Params):
    """Where the code is in a completion."""

    needs_block: bool = param(True, "Only a fenced ``` block counts; otherwise a text without one is read whole.")


@dataclass(frozen=True)
class RunParams(CodeParams):
    """And how it is run."""

    setup: str = param(
        "",
        "Put before the completion's code, in the same module: imports that the prompts take for granted.",
        widget="code",
        longest=10_000,
    )
    seconds: float = param(5.0, "Time for one completion.", min=0.1, max=300.0)
    memory_mb: int = param(256, "Memory for one completion, in MiB.", min=16, max=16_384)


def code_of(completion: Completion, params: CodeParams) -> str | None:
    """The completion's code; None where there is none, or more than anybody reads."""
    code = last_code_block(completion.text)
    if code is None and not params.needs_block:
        code = completion.text
    return None if code is None or len(code) > LONGEST_SOURCE or not code.strip() else code


def with_setup(code: str, params: RunParams) -> str:
    return f"{params.setup}\n{code}" if params.setup.strip() else code


def failure(index: int, outcome: Outcome) -> Failure:
    """An evaluation that isn't the model's code, and didn't end well."""
    words = outcome.message or f"It ended as {outcome.kind}."
    return Failure(index, _WORDS.get(outcome.kind, "error"), words[:500], outcome.traceback[-4_000:])


def without_trouble(outcomes: Mapping[int, Outcome], values: list[float | None]) -> list[Failure]:
    """Takes the scores back that the sandbox has no say on because it failed itself; a failure for each.

    Only where no code can bring that about to be spared a 0: its zygote ended or hung, or no process could be made. The
    verifier's end is no such trouble, since values that a candidate gives can take its memory and its time. (Without
    seccomp a bare candidate could end the zygote; it could do anything else there, too.)
    """
    failures = [failure(index, outcome) for index, outcome in outcomes.items() if outcome.trouble]
    for each in failures:
        values[each.index] = None
    return failures


def ending(outcome: Outcome) -> str:
    """One sentence for people about code of the model; "" when it ended well."""
    return "" if outcome.kind is Kind.OK else (outcome.message or f"It ended as {outcome.kind}.")[:300]
