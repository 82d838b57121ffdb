"""The requirements of a test on a candidate, read from the test's syntax without executing anything.

A test runs in a different process from the candidate's code, so it may only call the candidate's functions with plain
values and examine the plain values that they return. A test that needs more ("Stack" as a class with methods, a lambda
as an argument) can't be judged: `Requirements.problem` says why, and such a test never passes.
"""

import ast
import builtins
import re
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from workers.sandbox.requirements import free_names, syntax
from workers.sandbox.requirements.assertions import find_runs
from workers.sandbox.requirements.forbidden_in_tests import forbidden_use
from workers.sandbox.requirements.syntax import FUNCTIONS, Function, NamedFunction, TooDeep

FILE = "<test>"
MAX_LENGTH = 50_000
"""Maximum length of a test in characters, because the tree of a longer test takes too much memory."""
MAX_SHORT_LENGTH = 4_000
"""Maximum length in characters of a test that the caller parses itself."""
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__", "__doc__", "__builtins__"}
_CANDIDATE_MODULES = frozenset(("solution", "candidate", "main", "submission", "answer", "your_module", "my_module"))
_NUMBERS_AND_STRINGS = (int, float, complex, str, bytes, bytearray)
_CONTAINERS = (list, tuple, dict, set, frozenset, range, deque, Counter, defaultdict)
_PLAIN_ATTRIBUTES = frozenset(name for kind in (*_NUMBERS_AND_STRINGS, *_CONTAINERS) for name in dir(kind)) | frozenset(
    (
        *("shape", "dtype", "size", "ndim", "T", "tolist", "item", "all", "any", "sum", "mean", "astype", "flatten"),
        *("year", "month", "day", "hour", "minute", "second", "days", "seconds", "total_seconds", "isoformat", "date"),
    )
)
_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_VALUE_USES = (ast.Compare, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Subscript, ast.Assert, ast.If, ast.While, ast.IfExp)


@dataclass(frozen=True)
class Requirements:
    source: str | ast.Module
    """Code to compile: the source, or its tree without the imports from the candidate's module."""
    names: frozenset[str]
    """Free names that no library defines, so that the candidate must define them."""
    library: dict[str, tuple[str, str]]
    """Free names that a library defines, as name -> (module, name in it or "" for the module itself)."""
    runs: tuple[str, ...]
    """Functions and classes that the test only defines, to be run after it (defined_tests.py)."""
    problem: str
    """Explanation for people of why the test can't be judged with plain values; "" if it can."""
    doubts: str = ""
    """Explanation for people of why the test may check less than it seems to; "" if there are no doubts."""

    def packed(self) -> list[Any]:
        """Return the requirements as plain values, so that the verifier need not read the test again."""
        library = {name: list(origin) for name, origin in self.library.items()}
        return [sorted(self.names), library, list(self.runs), self.problem]

    @classmethod
    def unpacked(cls, test: str, packed: list[Any]) -> "Requirements":
        names, library, runs, problem = packed
        origins = {name: tuple(origin) for name, origin in library.items()}
        return cls(test, frozenset(names), origins, tuple(runs), problem)


@lru_cache(maxsize=4096)
def packed_of_short(test: str) -> list[Any] | None:
    """Return the packed requirements of a short test that is compiled unchanged, or None if its verifier must read it.
    The completions of a group share their tests, so caching this saves each of their verifiers the work."""
    if len(test) > MAX_SHORT_LENGTH or "\\" in test or syntax.is_too_deep(test):
        return None  # a backslash may cause a warning, and warnings can't be silenced for one thread
    try:
        requirements = read(test)
    except (SyntaxError, ValueError, MemoryError, RecursionError, Warning):
        return None
    return requirements.packed() if requirements.source is test else None


def read_bounded(test: str) -> Requirements | None:
    """Return the requirements of a test, or None if it can't be parsed, is too long or is nested too deeply."""
    if len(test) > MAX_LENGTH or syntax.is_too_deep(test):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return read(test)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def read(test: str) -> Requirements:
    """Return the requirements of a test, without a time limit. Raises SyntaxError, ValueError, MemoryError or
    RecursionError if it can't be parsed."""
    tree = ast.parse(test, FILE)
    name = _called_with_values(tree)  # a quick check that covers most tests of a dataset
    if name and not free_names.library({name}, {name}):
        return Requirements(test, frozenset((name,)), {}, (), forbidden_use(syntax.parents(tree), {}, set()))
    source = tree if "import" in test and _drop_imports(tree) else test
    try:
        return _Reader(tree, source).requirements()
    except TooDeep:
        return Requirements(source, frozenset(), {}, (), "Its functions are nested too deeply.")


def _called_with_values(tree: ast.Module) -> str:
    """Return the name f for a test that consists of lines like `assert f(1, [2]) == "a"`, and "" for any other test."""
    names = {_asserted_call(statement) for statement in tree.body}
    return names.pop() if len(names) == 1 else ""


def _asserted_call(statement: ast.stmt) -> str:
    if not isinstance(statement, ast.Assert) or statement.msg or not isinstance(statement.test, ast.Compare):
        return ""
    call, values = statement.test.left, statement.test.comparators
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        return ""
    if call.func.id in _BUILTINS:  # what is forbidden of eval and open depends on the values
        return ""
    return call.func.id if all(map(_is_value, (*call.args, *values))) else ""


def _is_value(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Constant) or (
        isinstance(node, (ast.List, ast.Tuple)) and all(map(_is_value, node.elts))
    )


def _drop_imports(tree: ast.Module) -> bool:
    """Remove imports from the candidate's module, which makes their names free, and return whether there were any."""
    dropped = False
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for index, statement in enumerate(body):
            if not isinstance(statement, ast.ImportFrom) or statement.module not in _CANDIDATE_MODULES:
                continue
            if all(alias.asname is None for alias in statement.names):
                body[index] = ast.copy_location(ast.Pass(), statement)
                dropped = True
    return dropped


class _Reader:
    def __init__(self, tree: ast.Module, source: str | ast.Module) -> None:
        self._tree = tree
        self._source = source
        self._defined: dict[str, Function] = {}
        self._classes: set[str] = set()
        self._bound: set[str] = set()
        self._aliases: dict[Function, set[str]] = {}
        """Parameters that receive a function of the candidate, as in HumanEval's check(candidate), by function."""
        self._returned: set[str] = set()
        self._nodes = list(syntax.scoped_nodes(tree))
        self._bind()
        self._problem = ""

    def requirements(self) -> Requirements:
        loads = list(self._loads())
        free = {name.id for name, _ in loads}
        library = free_names.library(free, {name.id for name, parent in loads if not isinstance(parent, ast.Attribute)})
        self._free = frozenset(free - library.keys())
        self._find_aliases()
        self._find_returned()
        is_used = False
        for node, parent, scope in self._nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self._is_candidates_name(node, scope):
                is_used = is_used or _is_used(node, parent)
                self._check_name(node, parent)
            self._check(node, scope)
            if self._problem:
                break
        nodes = syntax.parents(self._tree)
        names = syntax.full_names(nodes) | {name: ".".join(filter(None, origin)) for name, origin in library.items()}
        runs: tuple[str, ...] = ()
        if not self._problem:
            self._problem = forbidden_use(nodes, names, self._bound)
        if not self._problem and not is_used:
            self._problem = "It doesn't call anything that the tested code defines."
        if not self._problem:
            runs, self._problem = find_runs(self._tree, nodes, names)
        doubt = "" if self._problem else free_names.doubt(self._tree, self._free)
        return Requirements(self._source, self._free, library, runs, self._problem, doubt)

    def _bind(self) -> None:
        for node, _, scope in self._nodes:
            if scope:
                continue
            self._bound.update(syntax.binds(node))
            if isinstance(node, NamedFunction):
                self._defined[node.name] = node
            elif isinstance(node, ast.ClassDef):
                self._classes.add(node.name)

    def _loads(self) -> Iterator[tuple[ast.Name, ast.AST]]:
        loads_by_function: dict[Function, set[str]] = {}
        for node, parent, scope in self._nodes:
            if isinstance(node, FUNCTIONS):
                loads_by_function[node] = syntax.local_names(node)
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            name = node.id
            if (
                name not in self._bound
                and name not in _BUILTINS
                and not any(name in loads_by_function[part] for part in scope)
            ):
                yield node, parent

    def _find_aliases(self) -> None:
        for node, _, _ in self._nodes:
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            function = self._defined.get(node.func.id)
            if function is None:
                continue
            argument_names = [part.arg for part in (*function.args.posonlyargs, *function.args.args)]
            for parameter, value in zip(argument_names, node.args, strict=False):
                if isinstance(value, ast.Name) and value.id in self._free:
                    self._aliases.setdefault(function, set()).add(parameter)

    def _find_returned(self) -> None:
        for node, _, scope in self._nodes:
            if isinstance(node, ast.Assign) and self._is_candidate_call(node.value, scope):
                self._returned.update(target.id for target in node.targets if isinstance(target, ast.Name))

    def _is_candidates_name(self, node: ast.expr, scope: tuple[Function, ...]) -> bool:
        if not isinstance(node, ast.Name):
            return False
        for function in reversed(scope):
            if node.id in self._aliases.get(function, ()):
                return True
            if node.id in syntax.parameters(function):
                return False
        return node.id in self._free

    def _is_candidate_call(self, node: ast.expr, scope: tuple[Function, ...]) -> bool:
        return isinstance(node, ast.Call) and self._is_candidates_name(node.func, scope)

    def _check_name(self, node: ast.Name, parent: ast.AST) -> None:
        name = node.id[:80]
        if isinstance(parent, ast.Attribute) and parent.attr not in ("__name__", "__doc__"):
            self._problem = f"“{name}” is used as more than a function: {name}.{parent.attr[:80]}."
        elif isinstance(parent, ast.Raise):
            self._problem = f"“{name}” is used as an exception that the tested code defines."
        elif isinstance(parent, ast.ClassDef):
            self._problem = f"“{name}” is used as a class to derive from."
        elif isinstance(parent, _VALUE_USES) or (isinstance(parent, ast.For) and parent.iter is node):
            self._problem = f"“{name}” is used as a value, not called as a function."

    def _check(self, node: ast.AST, scope: tuple[Function, ...]) -> None:
        if isinstance(node, ast.Attribute) and node.attr not in _PLAIN_ATTRIBUTES:
            if self._is_candidate_call(node.value, scope):
                self._problem = (
                    f"The result of “{syntax.name_of(node.value)}” is used as more than a plain value: "
                    f".{node.attr[:80]}."
                )
            elif isinstance(node.value, ast.Name) and node.value.id in self._returned:
                name = node.value.id[:80]
                self._problem = f"“{name}” is used as more than a plain value: {name}.{node.attr[:80]}."
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            for part in ast.walk(node.type):
                if isinstance(part, ast.Name) and self._is_candidates_name(part, scope):
                    self._problem = f"“{part.id[:80]}” is used as an exception that the tested code defines."
        elif isinstance(node, ast.Await) and self._is_candidate_call(node.value, scope):
            self._problem = "A function that the tested code defines is awaited."
        elif isinstance(node, ast.Call):
            self._check_call(node, scope)

    def _check_call(self, node: ast.Call, scope: tuple[Function, ...]) -> None:
        function = node.func
        values = [*node.args, *(part.value for part in node.keywords)]
        if self._is_candidate_call(function, scope) or (
            isinstance(function, ast.Name) and function.id in self._returned
        ):
            self._problem = f"A function that the tested code returns is called: “{syntax.name_of(function)}”."
        elif self._is_candidates_name(function, scope):
            for value in values:
                self._check_argument(syntax.name_of(function), value, scope)
        elif isinstance(function, ast.Name) and function.id in ("isinstance", "issubclass"):
            for part in ast.walk(values[1]) if len(values) > 1 else ():
                if isinstance(part, ast.Name) and self._is_candidates_name(part, scope):
                    self._problem = f"“{part.id[:80]}” is used as a class that the tested code defines."
        elif (
            isinstance(function, ast.Attribute)
            and isinstance(function.value, ast.Name)
            and function.value.id == "asyncio"
            and any(self._is_candidate_call(value, scope) for value in values)
        ):
            self._problem = "A function that the tested code defines is awaited."

    def _check_argument(self, called: str, value: ast.expr, scope: tuple[Function, ...]) -> None:
        if isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in self._defined):
            self._problem = f"A function that the test defines is passed to “{called}”."
            return
        if isinstance(value, ast.Name) and value.id in self._classes:
            self._problem = f"A class that the test defines is passed to “{called}”."
            return
        for part in ast.walk(value):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name):
                name = part.func.id
                if name in self._classes or (_CLASS_NAME.match(name) and self._is_candidates_name(part.func, scope)):
                    self._problem = f"“{name[:80]}” creates an object that is passed to “{called}”."
                    return


def _is_used(node: ast.Name, parent: ast.AST) -> bool:
    return isinstance(parent, (ast.Call, ast.keyword, ast.Assign, ast.List, ast.Tuple, ast.Dict, ast.Starred))
