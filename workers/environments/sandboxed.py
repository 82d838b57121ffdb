"""Tools whose code runs in the sandbox: a function written by an admin, and an interpreter for the model's code."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.episodes import ToolError
from workers.environments import signature
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.rewards import sandboxed
from workers.rewards.parameters import Params, param
from workers.rewards.reward import Cost
from workers.rewards.tools import Tools, Unavailable
from workers.sandbox.outcomes import Job, Kind, Limits, Outcome, SandboxUnavailable
from workers.sandbox.pool import Sandbox

MAX_SOURCE_LENGTH = 100_000
MAX_CHARACTERS = 200_000
"""Maximum length of a result; a longer one is an error for the model."""
_ERRORS = {Kind.TIMEOUT: ToolError.TIMEOUT, Kind.OUTPUT: ToolError.OUTPUT}
_CALL = """

def __grpo_call__(__grpo_name__, __grpo_arguments__):
    import json
    value = globals()[__grpo_name__](**__grpo_arguments__)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text[:{most}]
"""
_INTERPRETER = """
def __grpo_run__(code):
    import ast, linecache, traceback
    linecache.cache["<code>"] = (len(code), None, code.splitlines(keepends=True), "<code>")
    space, value = {"__name__": "__main__"}, None
    try:
        tree = ast.parse(code, "<code>")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "<code>", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), space)
        return "", "" if value is None else repr(value)[:{most}]
    except SystemExit:
        return "", ""
    except MemoryError:
        raise
    except BaseException as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != "<code>":
            frames = frames.tb_next
        return "".join(traceback.format_exception(type(error), error, frames, limit=-10))[-4000:], ""
"""
STARTING_SOURCE = '''def word_count(text: str, word: str) -> int:
    """Count how often a word occurs in a text.

    Args:
        text: Where to look.
        word: What to count, in any case.
    """
    return text.lower().split().count(word.lower())
'''


@dataclass(frozen=True)
class ToolParams(Params):
    source: str = param(
        STARTING_SOURCE,
        "One function with types and a docstring, whose Args: section describes the arguments. Its name is the tool's "
        "name, and the model reads what it returns. Names of helper functions begin with _.",
        widget="code",
        longest=MAX_SOURCE_LENGTH,
        rule=signature.problem,
    )
    seconds: float = param(10.0, "Time limit of one call.", min=0.1, max=600.0)
    memory_mb: int = param(256, "Memory limit of one call, in MiB.", min=16, max=16_384)


@dataclass(frozen=True)
class InterpreterParams(Params):
    seconds: float = param(5.0, "Time limit of one call.", min=0.1, max=600.0)
    memory_mb: int = param(256, "Memory limit of one call, in MiB.", min=16, max=16_384)


class _OwnTool(EpisodeSession):
    def __init__(self, name: str, params: ToolParams, sandbox: Sandbox) -> None:
        self._tool = signature.describe(params.source)
        self._name, self._params, self._sandbox = name, params, sandbox

    def tools(self) -> list[ToolDescription]:
        return [ToolDescription(self._name, self._tool.description, self._tool.parameters)]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        source = self._params.source + _CALL.replace("{most}", str(MAX_CHARACTERS + 1))
        job = Job(source, "__grpo_call__", (self._tool.name, dict(arguments)))
        outcome = self._sandbox.call(job, _limits(self._params, seconds))
        return _read(str(outcome.value), self._name) if outcome.kind is Kind.OK else _error_result(outcome, self._name)


class _Interpreter(EpisodeSession):
    def __init__(self, name: str, params: InterpreterParams, sandbox: Sandbox) -> None:
        self._name, self._params, self._sandbox = name, params, sandbox

    def tools(self) -> list[ToolDescription]:
        description = (
            "Run Python code. Returns what it prints and the value of its last expression. Every call starts afresh, "
            "without the variables of earlier calls. There are no files, network or other processes."
        )
        return [ToolDescription.of_text(self._name, description, "code", "A complete Python program.")]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        source = _INTERPRETER.replace("{most}", str(MAX_CHARACTERS + 1))
        outcome = self._sandbox.call(Job(source, "__grpo_run__", (arguments["code"],)), _limits(self._params, seconds))
        if outcome.kind is not Kind.OK:
            return _error_result(outcome, self._name)
        try:
            error, value = map(str, outcome.value)
        except (TypeError, ValueError):
            return Result("The code replaced the interpreter.", ToolError.RAISED)
        if error:
            return Result("\n".join(filter(None, (outcome.stdout.rstrip("\n"), error))), ToolError.RAISED)
        text = "\n".join(filter(None, (outcome.stdout.rstrip("\n"), value)))
        return _read(text or "It printed nothing, and its last line is not an expression with a value.", self._name)


def _read(text: str, name: str) -> Result:
    if len(text) > MAX_CHARACTERS:
        return Result(f"{name} returned more than {MAX_CHARACTERS:,} characters.", ToolError.OUTPUT)
    return Result(text)


def _error_result(outcome: Outcome, name: str) -> Result:
    if outcome.trouble:
        return Result(f"{name} is not available: {outcome.ending}", ToolError.UNAVAILABLE)
    return Result(f"{name} failed. {outcome.ending}", _ERRORS.get(outcome.kind, ToolError.RAISED))


def _limits(params: ToolParams | InterpreterParams, seconds: float) -> Limits:
    time_limit = max(0.01, min(params.seconds, seconds))
    return Limits(seconds=time_limit, memory_mb=params.memory_mb, value_bytes=8 * MAX_CHARACTERS)


def _sandbox(tools: Tools) -> Sandbox:
    try:
        return sandboxed.sandbox(tools)
    except SandboxUnavailable as error:
        raise Unavailable(str(error)) from None


OWN_TOOL = Entry(
    key="python_tool",
    title="Own Python tool",
    help="A function that you write, which runs only in the sandbox.",
    params=ToolParams,
    kind=EntryKind.TOOL,
    open=lambda name, params, tools: _OwnTool(name, params, _sandbox(tools)),
    cost=Cost.SANDBOX,
    use="When nothing in the library fits. Name, description and arguments are read from the function's source. Each "
    "call runs in a fresh process without files or network, and with the trainer's packages only.",
    admin_only=True,
    name_of=lambda params: signature.describe(params.source).name,
)
INTERPRETER = Entry(
    key="python_interpreter",
    title="Python interpreter",
    help="Runs Python that the model writes, in the sandbox.",
    params=InterpreterParams,
    kind=EntryKind.TOOL,
    open=lambda name, params, tools: _Interpreter(name, params, _sandbox(tools)),
    cost=Cost.SANDBOX,
    use="For models that use code to calculate or check. It returns what the code prints and the value of its last "
    "expression. Each call runs in a fresh process, so no variables are kept.",
)
