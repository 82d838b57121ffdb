"""A calculator tool: the four operations, powers, brackets and common functions."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workers.contract.run.episodes import ToolError
from workers.environments.entry import Entry, EntryKind, EpisodeSession, Result, ToolDescription
from workers.rewards.parameters import Params, param

MAX_LENGTH = 400
MAX_RESULT = 1e100
MAX_NODES = 200
_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "max": max, "min": min, "round": round, "sqrt": math.sqrt, "log": math.log, "log10": math.log10,
    "exp": math.exp, "sin": math.sin, "cos": math.cos, "tan": math.tan, "floor": math.floor, "ceil": math.ceil,
}  # fmt: skip
_CONSTANTS = {"pi": math.pi, "e": math.e}


class InvalidExpression(ValueError):
    """Refusal of an expression that the calculator doesn't support."""


@dataclass(frozen=True)
class CalculatorParams(Params):
    digits: int = param(10, "Significant digits of the result.", min=1, max=15)


def value_of(expression: str) -> float | int:
    """Evaluate an expression. Raises InvalidExpression if it can't be parsed or is too long, and ZeroDivisionError,
    OverflowError or ValueError if it has no value."""
    if len(expression) > MAX_LENGTH:
        raise InvalidExpression(f"The expression is longer than {MAX_LENGTH} characters.")
    try:
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidExpression("The expression can't be parsed.") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise InvalidExpression("The expression has too many parts.")
    return _value(tree.body)


def _value(node: ast.expr) -> float | int:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return _bounded(node.value)
    if isinstance(node, ast.Name) and node.id in _CONSTANTS:
        return _CONSTANTS[node.id]
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        base, operand = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Pow) and base and abs(operand) * math.log10(max(abs(base), 1.0) + 1) > 100:
            raise OverflowError("The result is too large.")
        return _bounded(_OPERATORS[type(node.op)](base, operand))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        if node.keywords:
            raise InvalidExpression("Functions take plain numbers only.")
        try:
            return _bounded(_FUNCTIONS[node.func.id](*map(_value, node.args)))
        except TypeError:
            raise InvalidExpression(f"{node.func.id} doesn't take {len(node.args)} numbers.") from None
    raise InvalidExpression("Only numbers, + - * / // % **, brackets and common functions can be used.")


def _bounded(value: Any) -> float | int:
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidExpression("The result is not a real number.")
    if abs(value) > MAX_RESULT:
        raise OverflowError("The result is too large.")
    return value  # type: ignore[no-any-return]


class _Calculator(EpisodeSession):
    def __init__(self, name: str, params: CalculatorParams) -> None:
        self._name, self._digits = name, params.digits

    def tools(self) -> list[ToolDescription]:
        description, about = "Calculate the value of an arithmetic expression.", "Arithmetic, such as (3 + 4) * 2 ** 3."
        return [ToolDescription.of_text(self._name, description, "expression", about)]

    def call(self, name: str, arguments: Mapping[str, Any], seconds: float) -> Result:
        try:
            value = value_of(arguments["expression"])
        except ZeroDivisionError:
            return Result("It divides by zero.", ToolError.RAISED)
        except (ValueError, OverflowError) as error:
            return Result(str(error) if isinstance(error, InvalidExpression) else "It has no value.", ToolError.RAISED)
        return Result(str(value) if isinstance(value, int) else f"{value:.{self._digits}g}")


ENTRY = Entry(
    key="calculator",
    title="Calculator",
    help="Evaluates an arithmetic expression.",
    params=CalculatorParams,
    kind=EntryKind.TOOL,
    open=lambda name, params, tools: _Calculator(name, params),
    use="For models that know what to calculate, but make arithmetic errors. It evaluates no code, only numbers, "
    "operators and common functions.",
)
