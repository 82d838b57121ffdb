"""Reads the syntax of a test: its nodes, the names that it binds, and the full names behind imports."""

import ast
import re
from collections.abc import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
DEEPEST = 60
"""The deepest nesting of brackets: beyond it, the parser's time for some texts doubles with each level."""
DEEPEST_SCOPE = 20
"""The deepest nesting of functions: each is searched once for every function around it."""

_BINDING = frozenset(
    (
        *(ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
    )
)
_LOOKED_AT = _BINDING | {ast.Attribute, ast.Call, ast.Assign, ast.Await, ast.Lambda}
_OPERATORS = frozenset((ast.Load, ast.Store, ast.Del, *ast.operator.__subclasses__(), *ast.cmpop.__subclasses__()))
_NOTHING_IN = _OPERATORS | {ast.Constant}
_BRACKETS = re.compile(r"[([{]|([)\]}])")

NamedFunction = ast.FunctionDef | ast.AsyncFunctionDef
Function = NamedFunction | ast.Lambda
ScopedNode = tuple[ast.AST, ast.AST, tuple[Function, ...]]
"""A node, its parent, and the functions around it."""


class TooDeep(ValueError):
    """Functions are nested deeper than DEEPEST_SCOPE levels."""


def parsed(source: str) -> ast.Module | str:
    """Parse a source; return its tree, or the problem as a part of a sentence. Nothing is executed."""
    if "\0" in source:
        return "it holds a NUL byte"
    try:
        return ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, MemoryError, RecursionError):
        return "it can't be parsed"


def scoped_nodes(tree: ast.Module) -> Iterator[ScopedNode]:
    """Yield the relevant nodes in the order of the text. Raises TooDeep."""
    stack: list[ScopedNode] = [(tree, tree, ())]
    while stack:
        scoped_node = stack.pop()
        node, _, scope = scoped_node
        kind = type(node)
        if kind in _LOOKED_AT:
            yield scoped_node
            if kind is ast.Name:
                continue
        inner = (*scope, node) if isinstance(node, FUNCTIONS) else scope
        if len(inner) > DEEPEST_SCOPE:
            raise TooDeep
        for name in reversed(kind._fields):
            value = getattr(node, name, None)
            if type(value) is list:
                stack += [(child, node, inner) for child in reversed(value) if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and type(value) not in _NOTHING_IN:
                stack.append((value, node, inner))


def parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Return node -> parent, without operators and contexts, in the order of ast.walk."""
    parent_of: dict[ast.AST, ast.AST] = {}
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # the list grows during the loop
        for name in node._fields:
            value = getattr(node, name, None)
            for child in value if type(value) is list else (value,):
                if isinstance(child, ast.AST) and type(child) not in _OPERATORS:
                    parent_of[child] = node
                    nodes.append(child)
    return parent_of


def binds(node: ast.AST) -> Iterator[str]:
    """Yield the names that this node itself binds."""
    if type(node) not in _BINDING:
        return
    if isinstance(node, ast.Name):
        if not isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0]
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
        yield node.name


def parameters(function: Function) -> set[str]:
    arguments = function.args
    declared = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
    return {item.arg for item in declared if item is not None}


def local(function: Function) -> set[str]:
    """Return the names that a function binds, including its parameters."""
    names = parameters(function)
    for node in ast.walk(function):
        if node is not function:
            names.update(binds(node))
    return names


def required(function: NamedFunction) -> int:
    """Count the arguments that a call must pass."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional + arguments.kw_defaults.count(None)


def name_of(node: ast.expr) -> str:
    """Return the name of a node, or of the function that it calls; "" for anything else."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.id[:80] if isinstance(node, ast.Name) else ""


def imported(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return imported name -> full name: {"p": "pickle", "loads": "pickle.loads"}."""
    full_names = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                full_names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full_names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return full_names


def dotted(node: ast.AST, names: dict[str, str]) -> str:
    """Return the full name: "numpy.testing.assert_allclose" for np.testing.assert_allclose; "" for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((names.get(node.id, node.id), *reversed(parts)))


def deeper(text: str) -> bool:
    """Return whether brackets are nested deeper than DEEPEST levels."""
    depth = 0
    for match in _BRACKETS.finditer(text) if sum(map(text.count, "([{")) > DEEPEST else ():
        depth = max(0, depth - 1) if match[1] else depth + 1
        if depth > DEEPEST:
            return True
    return False


def is_generator(function: NamedFunction) -> bool:
    """Return whether the function itself yields, ignoring functions and classes inside it."""
    remaining: list[ast.AST] = list(function.body)
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            remaining.extend(ast.iter_child_nodes(node))
    return False
