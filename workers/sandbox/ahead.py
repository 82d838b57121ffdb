"""Tests that are one call of plain constants, `assert f(2, [3]) == 5`: most are. Which form such a test has says all
about it but for its constants, and its call can be asked before it is run, several in one go."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass
from typing import Any

from workers.sandbox import plain

MOST_BYTES = 16_384
"""Of a call; those in one go have twice that: less than a socket holds, so that who asks never waits for who is about
to answer."""
_CONSTANTS = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.USub, ast.Load)
"""No sets: it may matter in which order one is made."""
_BUILTINS = frozenset(dir(builtins))
_SIGNS = {
    **{ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="},
    **{ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not"},
}


@dataclass(frozen=True)
class OnlyCall:
    """Of a test."""

    name: str
    args: list[Any]
    form: str
    """The test without its constants."""


def only_call(tree: ast.Module) -> OnlyCall | None:
    """None for all that isn't of this form: one statement, one call of plain constants, compared with one if at all."""
    statement = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(statement, ast.Assert) or not (statement.msg is None or _is_constant(statement.msg)):
        return None
    found, before, after = statement.test, "", ""
    if isinstance(found, ast.Compare):
        if len(found.ops) != 1 or not _is_constant(found.comparators[0]):
            return None
        after = f" {_SIGNS[type(found.ops[0])]} 0"
        found = found.left
    elif isinstance(found, ast.UnaryOp) and isinstance(found.op, ast.Not):
        before, found = "not ", found.operand
    if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Name) or found.keywords:
        return None
    if found.func.id in _BUILTINS or not all(map(_is_constant, found.args)):
        return None  # of eval('1') and open('x', 'w') the constants do matter
    try:
        args = [ast.literal_eval(value) for value in found.args]
        plain.encode(args)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError, plain.Unplain):
        return None
    return OnlyCall(found.func.id, args, f"assert {before}{found.func.id}(){after}")


def _is_constant(node: ast.expr) -> bool:
    return type(node) is ast.Constant or all(isinstance(each, _CONSTANTS) for each in ast.walk(node))
