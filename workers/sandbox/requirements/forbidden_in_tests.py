"""Detection of forbidden parts of tests. A test runs in a separate process, so it can't share the candidate's input,
output, random numbers or folder; and it must not use functions that turn a value into code."""

import ast
from collections.abc import Iterable, Mapping

from workers.sandbox.requirements.syntax import dotted_name

_CODE_RUNNERS = frozenset(("eval", "exec", "compile", "__import__"))
_UNPICKLING_MODULES = frozenset(("pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"))
_UNPICKLING_FUNCTIONS = frozenset(("numpy.load", "pandas.read_pickle", "torch.load", "pandas.eval"))
_TIMING_FUNCTIONS = frozenset(("timeit.timeit", "timeit.repeat", "timeit.Timer"))
_STREAMS = frozenset(("sys.stdout", "sys.stdin", "sys.stderr"))
_REDIRECTS = frozenset(("redirect_stdout", "redirect_stderr"))
_WRITERS = frozenset(
    ("write_text", "write_bytes", "touch", "os.mkdir", "os.makedirs", "os.remove", "os.rename", "os.symlink")
)
_NO_BUILTINS = frozenset(("builtins", "__builtins__"))


def forbidden_use(parents: Mapping[ast.AST, ast.AST], names: dict[str, str], bound: Iterable[str]) -> str:
    """Explain to people why a test can't be judged; return "" if it can. `parents`: from syntax.parents; `names`: from
    syntax.full_names; `bound`: names that the test itself binds."""
    own_names = frozenset(bound) - names.keys()
    seeds = draws = 0
    for node, parent in parents.items():
        if isinstance(node, ast.ImportFrom) and node.module in _UNPICKLING_MODULES and node.names[0].name == "*":
            return _could_run_code(f"{node.module}.*")
        if not isinstance(node, (ast.Name, ast.Attribute)) or (isinstance(node, ast.Name) and node.id in own_names):
            continue
        name = dotted_name(node, names)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if problem := _code_problem(node, name, parent, call) or _process_problem(node, name, call):
            return problem
        if name.startswith(("random.", "numpy.random.")) and not isinstance(parent, ast.Attribute):
            seeds, draws = seeds + name.endswith(".seed"), draws + (not name.endswith(".seed"))
    if seeds > 1 and not draws:
        return "It seeds random numbers for the tested code, but that code draws its numbers in another process."
    return ""


def _code_problem(node: ast.Name | ast.Attribute, name: str, parent: ast.AST, call: ast.Call | None) -> str:
    owner, _, last = name.rpartition(".")
    if last in _CODE_RUNNERS and owner in ("", *_NO_BUILTINS):
        is_fixed = call is not None and call.args and all(isinstance(argument, ast.Constant) for argument in call.args)
        return "" if is_fixed else _could_run_code(name)
    if name in _NO_BUILTINS and not isinstance(parent, ast.Attribute):
        return _could_run_code(name)
    if owner.partition(".")[0] in _UNPICKLING_MODULES and (
        last.startswith(("load", "open", "Unpickler", "_Unpickler"))
    ):
        return _could_run_code(name)
    may_unpickle = call is not None and any(argument.arg == "allow_pickle" for argument in call.keywords)
    if name in _UNPICKLING_FUNCTIONS and (name != "numpy.load" or may_unpickle):
        return _could_run_code(name)
    if name in _TIMING_FUNCTIONS and (call is None or any(isinstance(argument, ast.Call) for argument in call.args)):
        return _could_run_code(name)
    return ""


def _process_problem(node: ast.Name | ast.Attribute, name: str, call: ast.Call | None) -> str:
    owner, _, last = name.rpartition(".")
    if last in _REDIRECTS and owner in ("", "contextlib"):
        return "What the tested code prints is visible only in its own process."
    if isinstance(node.ctx, ast.Store):
        if name in _STREAMS or owner == "builtins":
            return f"It changes {name}, but the tested code runs in its own process and doesn't see that."
        return ""
    if name.startswith(("unittest.mock.patch", "mock.patch")) or name in ("pytest.MonkeyPatch", "pytest.main"):
        return f"“{name}” changes nothing in the process of the tested code."
    if owner.partition(".")[0] == "tempfile" or name in _WRITERS or (call is not None and _last(node) in _WRITERS):
        return f"“{name or _last(node)}” needs a folder shared by the test and the tested code, which doesn't exist."
    if name in ("open", "io.open") and call is not None and _writes(call):
        return "It writes a file, but the test and the tested code share no folder."
    return ""


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id


def _writes(call: ast.Call) -> bool:
    modes = [*call.args[1:2], *(argument.value for argument in call.keywords if argument.arg == "mode")]
    mode = modes[0] if modes else None
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and bool(set("wax+") & set(mode.value))


def _could_run_code(name: str) -> str:
    return f"“{name[:80]}” could execute what the tested code returns."
