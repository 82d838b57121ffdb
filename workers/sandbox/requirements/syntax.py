"""Helpers for the syntax of a test: its nodes, the names that it binds, and the full names behind imports."""

import ast
import re
from collections.abc import Iterable, Iterator

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
MAX_BRACKET_DEPTH = 60
"""Maximum nesting depth of brackets; beyond it, the parser's time for some sources doubles with each level."""
MAX_FUNCTION_DEPTH = 20
"""Maximum nesting depth of functions, because each function is searched once for every function around it."""

_BINDING_TYPES = frozenset(
    (
        *(ast.Name, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom),
        *(ast.ExceptHandler, ast.MatchAs, ast.MatchStar),
    )
)
_RELEVANT_TYPES = _BINDING_TYPES | {ast.Attribute, ast.Call, ast.Assign, ast.Await, ast.Lambda}
_OPERATORS = frozenset((ast.Load, ast.Store, ast.Del, *ast.operator.__subclasses__(), *ast.cmpop.__subclasses__()))
_LEAF_TYPES = _OPERATORS | {ast.Constant}
_BRACKETS = re.compile(r"[([{]|([)\]}])")

NamedFunction = ast.FunctionDef | ast.AsyncFunctionDef
Function = NamedFunction | ast.Lambda
ScopedNode = tuple[ast.AST, ast.AST, tuple[Function, ...]]


class TooDeep(ValueError):
    """Error for functions nested deeper than MAX_FUNCTION_DEPTH levels."""


def parsed(source: str) -> ast.Module | str:
    """Parse source code without executing anything, and return its tree, or the problem as part of a sentence."""
    if "\0" in source:
        return "it contains a NUL byte"
    try:
        return ast.parse(source)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, MemoryError, RecursionError):
        return "it can't be parsed"


def scoped_nodes(tree: ast.Module) -> Iterator[ScopedNode]:
    """Yield the relevant nodes in source order. Raises TooDeep if functions are nested deeper than
    MAX_FUNCTION_DEPTH."""
    stack: list[ScopedNode] = [(tree, tree, ())]
    while stack:
        scoped_node = stack.pop()
        node, _, scope = scoped_node
        kind = type(node)
        if kind in _RELEVANT_TYPES:
            yield scoped_node
            if kind is ast.Name:
                continue
        inner = (*scope, node) if isinstance(node, FUNCTIONS) else scope
        if len(inner) > MAX_FUNCTION_DEPTH:
            raise TooDeep
        for name in reversed(kind._fields):
            value = getattr(node, name, None)
            if type(value) is list:
                stack += [(child, node, inner) for child in reversed(value) if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST) and type(value) not in _LEAF_TYPES:
                stack.append((value, node, inner))


def parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    """Return the parent of each node, without operators and contexts, in the order of ast.walk."""
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
    """Yield the names that a node itself binds."""
    if type(node) not in _BINDING_TYPES:
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


def local_names(function: Function) -> set[str]:
    """Return the names that a function binds, including its parameters."""
    names = parameters(function)
    for node in ast.walk(function):
        if node is not function:
            names.update(binds(node))
    return names


def required_count(function: NamedFunction) -> int:
    """Return the number of arguments that a call must pass."""
    arguments = function.args
    positional = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    return positional + arguments.kw_defaults.count(None)


def name_of(node: ast.expr) -> str:
    """Return the name that a node is, or the name of the function that it calls, or "" for anything else."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.id[:80] if isinstance(node, ast.Name) else ""


def full_names(nodes: Iterable[ast.AST]) -> dict[str, str]:
    """Return the full names of imported names, such as {"p": "pickle", "loads": "pickle.loads"}."""
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


def dotted_name(node: ast.AST, names: dict[str, str]) -> str:
    """Return the full name of a node: "numpy.testing.assert_allclose" for np.testing.assert_allclose; "" if it isn't a
    name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join((names.get(node.id, node.id), *reversed(parts)))


def is_too_deep(source: str) -> bool:
    """Return whether brackets are nested deeper than MAX_BRACKET_DEPTH levels."""
    depth = 0
    for match in _BRACKETS.finditer(source) if sum(map(source.count, "([{")) > MAX_BRACKET_DEPTH else ():
        depth = max(0, depth - 1) if match[1] else depth + 1
        if depth > MAX_BRACKET_DEPTH:
            return True
    return False


def is_generator(function: NamedFunction) -> bool:
    """Return whether a function itself yields, ignoring functions and classes inside it."""
    remaining: list[ast.AST] = list(function.body)
    while remaining:
        node = remaining.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            remaining.extend(ast.iter_child_nodes(node))
    return False
