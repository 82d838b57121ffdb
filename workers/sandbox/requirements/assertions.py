"""Analysis of which parts of a test run and assert something: an assertion that never runs would pass silently."""

import ast
from collections.abc import Iterator, Mapping

from workers.sandbox.requirements.syntax import NamedFunction, dotted_name, is_generator, required_count

_ASSERTING_NAMES = frozenset(("raises", "fail", "warns", "exit", "quit", "_exit", "throws"))
_FIXTURES = frozenset(
    (
        *("setUp", "tearDown", "setUpClass", "tearDownClass", "asyncSetUp", "asyncTearDown", "runTest"),
        *("setup_method", "teardown_method", "setup_class", "teardown_class"),
    )
)
_LAZY = frozenset(("map", "filter", "zip", "enumerate", "reversed"))
_ASSERTION_CATCHERS = frozenset(("AssertionError", "Exception", "BaseException"))


def find_runs(
    tree: ast.Module, parents: Mapping[ast.AST, ast.AST], names: dict[str, str]
) -> tuple[tuple[str, ...], str]:
    """Return the functions and classes to run after a test, and why the test would pass without asserting anything, or
    "". If its author relies on pytest or unittest, a test may consist of nothing but functions and classes. `parents`:
    from syntax.parents; `names`: from syntax.full_names."""
    finder = _AssertionFinder(tree, parents, names)
    runs = tuple(finder.runs())
    if finder.problem or any(map(finder.asserts, parents)):
        return runs, finder.problem
    return runs, "It checks nothing: it has no assertion."


class _AssertionFinder:
    def __init__(self, tree: ast.Module, parents: Mapping[ast.AST, ast.AST], names: dict[str, str]) -> None:
        self._tree = tree
        self._parents = parents
        self._names = names
        self._defs = {node.name: node for node in parents if isinstance(node, NamedFunction)}
        self._cases: set[str] = set()
        """Classes of the test that unittest would run."""
        self._used: set[str] = set()
        self._methods_used: set[str] = set()
        """Attributes that are used, and test names in quotes."""
        self.problem = ""
        for node in parents:
            self._note_use(node)

    def runs(self) -> Iterator[str]:
        """Yield the functions and classes to run after the test, and then set `problem`."""
        own_nodes: set[ast.AST] = set()
        for statement in self._tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
                if statement.name not in self._used and not required_count(statement) and not is_generator(statement):
                    own_nodes.add(statement)
                    yield statement.name
            elif isinstance(statement, ast.ClassDef):
                methods = self._methods(statement)
                if methods:
                    own_nodes.update(methods)
                    yield statement.name
        for node in self._parents:
            if not self.problem:
                self._check(node, own_nodes)

    def asserts(self, node: ast.AST) -> bool:
        """Return whether a node itself asserts something."""
        if isinstance(node, ast.Call):
            last = dotted_name(node.func, self._names).rpartition(".")[2] or getattr(node.func, "attr", "")
            return last.lower().startswith("assert") or last in _ASSERTING_NAMES
        return isinstance(node, (ast.Assert, ast.Raise))

    def _contains_assertion(self, node: ast.AST) -> bool:
        return any(map(self.asserts, ast.walk(node)))

    def _note_use(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            name = node.id
            if name not in self._used and (name not in self._defs or not self._is_inside(node, name)):
                self._used.add(name)
        elif isinstance(node, ast.Attribute):
            self._methods_used.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("test"):
            self._methods_used.add(node.value)

    def _is_inside(self, node: ast.AST, name: str) -> bool:
        while (parent := self._parents.get(node)) is not None:
            if isinstance(parent, NamedFunction) and parent.name == name:
                return True
            node = parent
        return False

    def _methods(self, class_: ast.ClassDef) -> list[NamedFunction]:
        """Return the methods that run when the class is run after the test, or [] if the class isn't run."""
        bases = [dotted_name(base, self._names).rpartition(".")[2] for base in class_.bases]
        is_case = any(base.endswith("TestCase") or base in self._cases for base in bases)
        if is_case:
            self._cases.add(class_.name)
        if not is_case and (bases or not class_.name.startswith("Test") or class_.name in self._used):
            return []
        methods = [item for item in class_.body if isinstance(item, NamedFunction)]
        if not is_case and any(item.name == "__init__" for item in methods):
            return []
        is_asynchronous = any(base.startswith("IsolatedAsyncio") for base in bases)
        return [
            item
            for item in methods
            if item.name.startswith("test")
            and required_count(item) <= 1
            and not is_generator(item)
            and (is_asynchronous or isinstance(item, ast.FunctionDef))
        ]

    def _check(self, node: ast.AST, own_nodes: set[ast.AST]) -> None:
        if isinstance(node, NamedFunction):
            self._check_function(node, own_nodes)
        elif isinstance(node, ast.Expr):
            self._check_statement(node)
        elif isinstance(node, ast.Assert) and isinstance(node.test, (ast.GeneratorExp, ast.Lambda, ast.Tuple)):
            if not isinstance(node.test, ast.Tuple) or node.test.elts:
                self.problem = f"Line {node.lineno} is always true: it asserts a tuple, a generator or a function."
        elif isinstance(node, ast.Try) and any(map(_swallows, node.handlers)) and any(map(_asserts, node.body)):
            self.problem = f"A failed assertion is swallowed by the “except” after line {node.lineno}."

    def _check_function(self, node: NamedFunction, own_nodes: set[ast.AST]) -> None:
        if node in own_nodes or not self._contains_assertion(node):
            return
        name = node.name
        is_method = isinstance(self._parents[node], ast.ClassDef)
        is_special = is_method and (name in _FIXTURES or name.startswith("__"))
        if name == "__del__":
            self.problem = "Assertions in “__del__” are ignored by Python."
        elif is_special or name in (self._methods_used if is_method else self._used):
            return
        elif not node.decorator_list or name.startswith("test"):
            why = "awaits" if isinstance(node, ast.AsyncFunctionDef) else "calls"
            self.problem = f"Nothing {why} “{name[:80]}”, which has assertions."

    def _check_statement(self, node: ast.Expr) -> None:
        value = node.value
        while isinstance(value, ast.UnaryOp):
            value = value.operand
        if isinstance(value, (ast.Compare, ast.BoolOp)):
            if isinstance(value, ast.BoolOp) and any(map(self._contains_assertion, value.values)):
                return
            if not isinstance(self._parents[node], (ast.With, ast.Try)):
                self.problem = f"The comparison in line {node.lineno} is not asserted."
        elif isinstance(value, ast.GeneratorExp):
            self.problem = f"The iterator in line {node.lineno} is never consumed, so it never runs."
        elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
            name = value.func.id
            called = self._defs.get(name)
            if isinstance(called, ast.AsyncFunctionDef) and not is_generator(called):
                self.problem = f"Nothing awaits “{name[:80]}” in line {node.lineno}, so it never runs."
            elif name in _LAZY or (called is not None and is_generator(called)):
                self.problem = f"The iterator in line {node.lineno} is never consumed, so it never runs."


def _asserts(node: ast.AST) -> bool:
    return any(isinstance(item, ast.Assert) for item in ast.walk(node))


def _swallows(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler catches failed assertions and does nothing but perhaps print something."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    if not any(kind is None or (isinstance(kind, ast.Name) and kind.id in _ASSERTION_CATCHERS) for kind in kinds):
        return False
    return all(
        isinstance(item, (ast.Pass, ast.Continue))
        or (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))
        or (
            isinstance(item, ast.Expr)
            and isinstance(item.value, ast.Call)
            and isinstance(item.value.func, ast.Name)
            and item.value.func.id == "print"
        )
        for item in handler.body
    )
