"""A reward written by an admin: one Python function, which runs only in the sandbox.

    def reward(completions, answer, **columns):
        return [float(text.strip() == right) for text, right in zip(completions, answer)]

It gets a batch: the completions as strings, and those columns of `columns_of` that its arguments name. It returns a
number or None for each completion. An exception fails the whole batch and is reported with its traceback.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workers.rewards.parameters import Params, param
from workers.rewards.reward import Completion, Cost, Example, Reward, Row, Scores
from workers.rewards.sandboxed import failure, sandbox
from workers.rewards.scoring import all_failed, score
from workers.rewards.tools import Tools
from workers.sandbox.outcomes import Job, Kind, Limits
from workers.sandbox.requirements.syntax import MAX_BRACKET_DEPTH, NamedFunction, is_generator, is_too_deep, parsed

FUNCTION_NAME = "reward"
FIRST_ARGUMENT = "completions"
MAX_SOURCE_CHARS = 100_000
BATCH_BYTES = 64 * 2**20
_CALL = """

def __grpo_call__(completions, columns):
    return {name}(completions, **columns)
"""
STARTING_SOURCE = '''def reward(completions, answer, **columns):
    """Return a score for each completion, or None where the reward doesn't apply to its row."""
    return [float(text.strip() == str(right)) for text, right in zip(completions, answer)]
'''


@dataclass(frozen=True)
class PythonParams(Params):
    source: str = param(
        STARTING_SOURCE,
        "A function `reward(completions, **columns)` that returns a number or None for each completion. Its arguments "
        "are named after the dataset's columns; prompts, turns and tokens are also available.",
        widget="code",
        longest=MAX_SOURCE_CHARS,
        rule=lambda source: problem(source),
    )
    seconds: float = param(30.0, "Time limit for one batch of completions, in seconds.", min=0.1, max=600.0)
    memory_mb: int = param(512, "Memory limit for one batch of completions, in MiB.", min=64, max=16_384)
    lowest: float = param(
        0.0, "Lowest score that the function returns; the low end of the range shown.", min=-1e9, max=1e9
    )
    highest: float = param(
        1.0, "Highest score that the function returns; the high end of the range shown.", min=-1e9, max=1e9
    )

    def problem(self) -> str | None:
        if self.lowest > self.highest:
            return "highest: must not be below lowest"
        return super().problem()


@dataclass(frozen=True)
class CodeTrial:
    scores: Scores
    problem: str = ""
    """A sentence that says why the source can't be used; "" if it scored every sample without a failure."""
    traceback: str = ""
    printed: list[str] = field(default_factory=list)


def problem(source: str) -> str:
    """Check the source without executing it, and return why it can't be a reward, or "" if it can."""
    if is_too_deep(source):
        return f"it has more than {MAX_BRACKET_DEPTH} nested brackets"
    tree = parsed(source)
    if isinstance(tree, str):
        return tree
    functions = [node for node in tree.body if isinstance(node, NamedFunction) and node.name == FUNCTION_NAME]
    if not functions:
        return f"it defines no function {FUNCTION_NAME}(completions, **columns)"
    return _signature_problem(functions[-1])


def trial(
    source: str, samples: Sequence[tuple[str | Completion, Row]], tools: Tools, *, seconds: float = 10.0
) -> CodeTrial:
    """Score samples in the sandbox and return the result. Errors of the source and a missing sandbox don't raise; the
    result's `problem` describes them."""
    if error := problem(source):
        return CodeTrial(all_failed(len(samples), "error", error), error)
    params = {"source": source, "seconds": seconds}
    texts, rows = [text for text, _ in samples], [row for _, row in samples]
    scores = score(_REWARD, texts, rows, params, tools)
    printed = [note for note in scores.notes if note]
    if scores.failures:
        first_failure = scores.failures[0]
        return CodeTrial(scores, first_failure.message, first_failure.traceback, printed)
    if samples and all(value is None for value in scores.values):
        return CodeTrial(scores, "It scored no sample: it returned None for each of them.", "", printed)
    return CodeTrial(scores, printed=printed)


def columns_of(completions: Sequence[Completion], rows: Sequence[Row]) -> dict[str, list[Any]]:
    """Return the columns that a function may request: every column of any row (None for rows without it), and for each
    completion `turns` (its messages; empty if it is a single text) and `tokens` (their number; None if unknown)."""
    names = dict.fromkeys(name for row in rows for name in row if name.isidentifier())
    columns = {name: [row.get(name) for row in rows] for name in names}
    columns["turns"] = [[dict(turn) for turn in completion.turns] for completion in completions]
    columns["tokens"] = [completion.tokens for completion in completions]
    columns["prompts"] = columns.get("prompt") or [None] * len(rows)
    columns.pop(FIRST_ARGUMENT, None)
    return columns


def python(completions: Sequence[Completion], rows: Sequence[Row], params: PythonParams, tools: Tools) -> Scores:
    """Return what the source's function returns for the batch, which should be between `lowest` and `highest` (0 to 1).
    The batch fails as a whole if the function raises an exception, hangs or returns the wrong number of scores."""
    count = len(completions)
    columns = columns_of(completions, rows)
    function = _function(params.source)
    if missing_columns := [name for name in _needed(function) if name not in columns]:
        return all_failed(
            count, "error", f"It requires the column {missing_columns[0]}, which the dataset doesn't have."
        )
    if function.args.kwarg is None:
        requested = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        columns = {name: values for name, values in columns.items() if name in requested}
    source = params.source + _CALL.replace("{name}", FUNCTION_NAME)
    job = Job(source, "__grpo_call__", ([completion.text for completion in completions], columns))
    limits = Limits(seconds=params.seconds, memory_mb=params.memory_mb, value_bytes=BATCH_BYTES)
    (outcome,) = sandbox(tools).run([job], limits)
    printed = "\n".join(text for text in (outcome.stdout, outcome.stderr) if text.strip())
    notes = [printed[-2_000:]] + [""] * (count - 1) if printed else []
    if outcome.kind is not Kind.OK:
        error = failure(0, outcome)
        return replace(all_failed(count, error.kind, error.message, error.traceback), notes=notes)
    if not isinstance(outcome.value, list | tuple):
        value = outcome.value
        shown = "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
        message = f"It returned {shown}, not a list with one score for each completion."
        return replace(all_failed(count, "wrong_length", message), notes=notes)
    return Scores(list(outcome.value), [], notes if len(outcome.value) == count else [])


def _function(source: str) -> ast.FunctionDef:
    return [
        node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == FUNCTION_NAME
    ][-1]


def _needed(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    plain = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    required = [argument for argument, default in keywords if default is None]
    return [argument.arg for argument in (*plain, *required) if argument.arg != FIRST_ARGUMENT]


def _signature_problem(function: NamedFunction) -> str:
    arguments = function.args
    if isinstance(function, ast.AsyncFunctionDef):
        return f"{FUNCTION_NAME} must not be async"
    if is_generator(function):
        return f"{FUNCTION_NAME} must return a list, not yield"
    if arguments.posonlyargs:
        return f"{FUNCTION_NAME} must take its arguments by name: remove the / from its signature"
    if not arguments.args or arguments.args[0].arg != FIRST_ARGUMENT:
        return f"the first argument of {FUNCTION_NAME} must be {FIRST_ARGUMENT}"
    if arguments.vararg is not None:
        return f"{FUNCTION_NAME} must not take *{arguments.vararg.arg}: columns are passed by name"
    return ""


_LONGER = """def reward(completions, answer, **columns):
    return [min(1.0, len(text) / len(right)) for text, right in zip(completions, answer)]
"""
_REWARD = Reward(
    key="python",
    title="Custom Python",
    help="Your own Python function, which runs only in the sandbox.",
    params=PythonParams,
    range_of=lambda params: (params.lowest, params.highest),
    batch=python,
    cost=Cost.SANDBOX,
    whole_batch=True,
    admin_only=True,
    low="Defined by the function.",
    high="Defined by the function.",
    use="If nothing in the library fits. The function is called once for each batch of completions, in a new process "
    "without files, network access or packages other than the trainer's. When you try it, its output is shown.",
    examples=(
        Example("7", 1.0, {"answer": "7"}, why="The default function compares the text with the row's answer."),
        Example("abc", 0.5, {"answer": "abcdef"}, {"source": _LONGER}, why="Three of six characters."),
    ),
)
REWARDS = (_REWARD,)
