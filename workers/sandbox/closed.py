"""Whether a test surely leaves nothing behind where it ran, read from its syntax.

What isn't known to be harmless counts as harmful: such a test is judged in a process of its own, as well as any other.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping

_LIBRARIES = frozenset(
    ("math", "cmath", "itertools", "collections", "fractions", "typing", "bisect", "heapq", "datetime")
)
"""Of which nothing that can be called keeps a state."""
_MODULES = sys.stdlib_module_names - {"copy"}
"""A library's attribute of such a name is another library; lists and dicts have a `copy`."""
_REACHES_FURTHER = frozenset(
    (
        *("eval", "exec", "compile", "open", "input", "breakpoint", "exit", "quit", "help", "memoryview", "super"),
        *("globals", "locals", "vars", "dir", "getattr", "setattr", "delattr", "type", "classmethod", "property"),
    )
)
_NODES = frozenset(
    (
        *(ast.Module, ast.Expr, ast.Assert, ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.While, ast.If),
        *(ast.Pass, ast.Break, ast.Continue, ast.Try, ast.ExceptHandler, ast.Raise, ast.Return, ast.Lambda),
        *(ast.FunctionDef, ast.arguments, ast.arg, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Constant),
        *(ast.Import, ast.ImportFrom, ast.alias, ast.Starred, ast.Subscript, ast.Slice, ast.Load, ast.Store),
        *(ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
        *(ast.comprehension, ast.IfExp, ast.NamedExpr, ast.Compare, ast.BoolOp, ast.BinOp, ast.UnaryOp),
        *(ast.JoinedStr, ast.FormattedValue),
        *(kind for base in (ast.boolop, ast.operator, ast.unaryop, ast.cmpop) for kind in base.__subclasses__()),
    )
)
"""No classes, decorators aside, no generators, nothing asynchronous: what could run later, in another's test."""


def is_closed(tree: ast.Module, library: Mapping[str, tuple[str, str]]) -> bool:
    """`library`: free names that stand for something of the standard library's."""
    return all(module in _LIBRARIES for module, _ in library.values()) and all(map(_is_harmless, ast.walk(tree)))


def _is_harmless(node: ast.AST) -> bool:
    kind = type(node)
    if kind not in _NODES:
        return False
    if kind is ast.Name:
        return node.id[:2] != "__" and node.id not in _REACHES_FURTHER  # type: ignore[attr-defined]
    if kind is ast.Attribute:
        return type(node.ctx) is ast.Load and node.attr[:1] != "_" and node.attr not in _MODULES  # type: ignore[attr-defined]
    if kind is ast.FunctionDef:
        return not node.decorator_list  # type: ignore[attr-defined]
    if kind is ast.Import:
        return all(alias.name in _LIBRARIES for alias in node.names)  # type: ignore[attr-defined]
    if kind is ast.ImportFrom:
        names = {alias.name for alias in node.names}  # type: ignore[attr-defined]
        return node.module in _LIBRARIES and not node.level and not names & _MODULES  # type: ignore[attr-defined]
    return True
