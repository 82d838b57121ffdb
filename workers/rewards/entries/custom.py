"""A reward written by an admin: one Python function, which runs only in the sandbox.

    def reward(completions, answer, **columns):
        return [float(text.strip() == right) for text, right in zip(completions, answer)]

It gets a batch: the completions as strings, and those columns of `columns_of` that its arguments name. It returns a
number or None for each completion. An exception fails the whole batch and is reported with its traceback.
"""

import ast
import functools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import itemgetter
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
OTHER_NAMES = ("responses", "outputs", "generations", "predictions", "texts")
"""Other names of the first argument that mean the completions."""
UNAVAILABLE = {
    "completion_ids": "use tokens, the number of tokens of each completion",
    "trainer_state": "rewards don't know the step",
}
MAX_SOURCE_CHARS = 100_000
BATCH_BYTES = 64 * 2**20
_CALL = """

def __grpo_call__(completions, columns):
    scores = {name}({first}completions, **columns)
    if hasattr(scores, "__await__"):
        import asyncio

        async def awaited():
            return await scores

        scores = asyncio.run(awaited())
    return scores.tolist() if hasattr(scores, "tolist") else scores
"""
STARTING_SOURCE = '''def reward(completions, answer, **columns):
    """Return a score for each completion, or None where the reward doesn't apply to its row."""
    return [float(text.strip() == str(right)) for text, right in zip(completions, answer)]
'''


@dataclass(frozen=True)
class PythonParams(Params):
    source: str = param(
        STARTING_SOURCE,
        "A function such as `reward(completions, **columns)` that returns a number or None for each completion. Its "
        "arguments are named after the dataset's columns; prompts, turns and tokens are also available.",
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
    """A sentence that says why the source can't be used, failed or scored no sample; otherwise ""."""
    traceback: str = ""
    printed: list[str] = field(default_factory=list)


def problem(source: str) -> str:
    """Check the source without executing it, and return why it can't be a reward, or "" if it can."""
    return _problem(source)


@functools.lru_cache(maxsize=64)
def _problem(source: str) -> str:
    if is_too_deep(source):
        return f"it has more than {MAX_BRACKET_DEPTH} nested brackets"
    tree = parsed(source)
    if isinstance(tree, str):
        return tree
    functions = _candidates(tree)
    if not functions:
        return f"it defines no function {FUNCTION_NAME}(completions, **columns)"
    if len(functions) > 1:
        function_names = ", ".join(f"{function.name} in line {function.lineno}" for function in functions)
        return f"it has several functions with completions ({function_names}): call the one to use {FUNCTION_NAME}"
    return _signature_problem(functions[0]) or _unavailable(functions[0])


def _candidates(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the last function with the usual name or, without one, those that take completions; of a single function
    any name and arguments."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    if FUNCTION_NAME in functions:
        return [functions[FUNCTION_NAME]]
    return [function for function in functions.values() if _takes_completions(function)] or (
        list(functions.values()) if len(functions) == 1 else []
    )


def _takes_completions(function: NamedFunction) -> bool:
    arguments = function.args
    names = {argument.arg for argument in (*arguments.args, *arguments.kwonlyargs)}
    return FIRST_ARGUMENT in names or _first_name(function) in OTHER_NAMES


def _first_name(function: NamedFunction) -> str:
    return function.args.args[0].arg if function.args.args else ""


def _unavailable(function: NamedFunction) -> str:
    """Name the first line that needs what TRL passes but a reward here doesn't get; "" if there is none."""
    columns = function.args.kwarg.arg if function.args.kwarg else ""
    needed_arguments = {argument.arg: argument.lineno for argument in _required(function)}
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key))) if name == columns:
                needed_arguments.setdefault(key, node.lineno)
    for name, line in sorted(needed_arguments.items(), key=itemgetter(1)):
        if name in UNAVAILABLE:
            return f"line {line} reads {name}, which isn't passed here: {UNAVAILABLE[name]}"
    return ""


def _reads_messages(tree: ast.Module) -> bool:
    """Return whether the source reads completions as lists of messages, such as completion[0]["content"]."""
    names = {"completion"}
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            names |= set(_completion_names(node.target, node.iter))
    return any(
        isinstance(node.slice, ast.Constant)
        and node.slice.value == "content"
        and isinstance(node.value, ast.Subscript)
        and _is_completion(node.value.value, names)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
    )


def _is_completion(node: ast.expr, names: Set[str]) -> bool:
    is_named = isinstance(node, ast.Name) and node.id in names
    return is_named or (isinstance(node, ast.Subscript) and _is_completions(node.value))


def _is_completions(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in (FIRST_ARGUMENT, *OTHER_NAMES)


def _completion_names(target: ast.expr, iterated: ast.expr) -> Iterator[str]:
    """Yield the loop variables that stand for one completion, also through zip and enumerate."""
    if _is_completions(iterated) and isinstance(target, ast.Name):
        yield target.id
    if isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Name) and isinstance(target, ast.Tuple):
        targets = target.elts[1:] if iterated.func.id == "enumerate" else target.elts
        for inner, argument in zip(targets, iterated.args, strict=False):
            yield from _completion_names(inner, argument)


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
    """Return the columns that a function may request: every column of any row (None for rows without it), `prompts`
    (the column `prompt`), and for each completion `turns` (its messages; empty if it is a single text) and `tokens`
    (their number or None)."""
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
    tree = ast.parse(params.source)
    function = _candidates(tree)[0]
    if missing_columns := [name for name in _required_columns(function) if name not in columns]:
        return all_failed(
            count, "error", f"It requires the column {missing_columns[0]}, which the dataset doesn't have."
        )
    if function.args.kwarg is None:
        requested = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        columns = {name: values for name, values in columns.items() if name in requested}
    is_first = _first_name(function) in OTHER_NAMES
    call = _CALL.replace("{name}", function.name).replace("{first}", "" if is_first else f"{FIRST_ARGUMENT}=")
    texts: list[Any] = [completion.text for completion in completions]
    if _reads_messages(tree):
        texts = [[{"role": "assistant", "content": text}] for text in texts]
    job = Job(params.source + call, "__grpo_call__", (texts, columns))
    limits = Limits(seconds=params.seconds, memory_mb=params.memory_mb, value_bytes=BATCH_BYTES)
    (outcome,) = sandbox(tools).run([job], limits)
    printed = "\n".join(text for text in (outcome.stdout, outcome.stderr) if text.strip())
    notes = [printed[-2_000:]] + [""] * (count - 1) if printed else []
    if outcome.kind is not Kind.OK:
        error = failure(0, outcome)
        return replace(all_failed(count, error.kind, error.message, error.traceback), notes=notes)
    if not isinstance(outcome.value, list | tuple):
        value = outcome.value
        description = "nothing" if value is None else f"{type(value).__name__} {str(value)[:60]!r}"
        message = f"It returned {description}, not a list with one score for each completion."
        return replace(all_failed(count, "wrong_length", message), notes=notes)
    return Scores(list(outcome.value), [], notes if len(outcome.value) == count else [])


def _required_columns(function: NamedFunction) -> list[str]:
    return [argument.arg for argument in _required(function) if argument.arg not in (FIRST_ARGUMENT, *OTHER_NAMES)]


def _required(function: NamedFunction) -> list[ast.arg]:
    """Return the arguments without a default."""
    arguments = function.args
    positional = arguments.args[: len(arguments.args) - len(arguments.defaults)]
    keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [*positional, *(argument for argument, default in keywords if default is None)]


def _signature_problem(function: NamedFunction) -> str:
    arguments, name = function.args, function.name
    if is_generator(function):
        return f"{name} must return a list, not yield"
    if arguments.posonlyargs:
        return f"{name} must take its arguments by name: remove the / from its signature"
    if not _takes_completions(function):
        return f"an argument of {name} must be {FIRST_ARGUMENT}: change line {function.lineno}"
    if arguments.vararg is not None:
        return f"{name} must not take *{arguments.vararg.arg}: columns are passed by name"
    return ""


_LENGTH_EXAMPLE = """def reward(completions, answer, **columns):
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
        Example("abc", 0.5, {"answer": "abcdef"}, {"source": _LENGTH_EXAMPLE}, why="Three of six characters."),
    ),
)
REWARDS = (_REWARD,)
