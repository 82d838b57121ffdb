"""Resolution of a test's unbound names: those of a library, and those that may let the candidate judge itself."""

import ast
import sys

_CLASSES = {
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections"),
    **{"Fraction": "fractions", "Decimal": "decimal", "timedelta": "datetime", "date": "datetime"},
}
"""Names that tests use without an import. They refer to the library, because a definition in the candidate could decide
the expected values."""
_HELPERS = {
    **dict.fromkeys(("isclose", "sqrt", "fabs", "ceil", "floor", "pi", "inf", "nan", "isnan", "isinf"), "math"),
    **dict.fromkeys(("exp", "log", "sin", "cos", "tan", "hypot", "radians", "degrees"), "math"),
    **dict.fromkeys(("assert_allclose", "assert_array_equal", "assert_almost_equal", "assert_equal"), "numpy.testing"),
    **dict.fromkeys(("assert_array_almost_equal", "assert_array_less"), "numpy.testing"),
    **dict.fromkeys(("allclose", "array_equal"), "numpy"),
    **dict.fromkeys(("approx", "raises"), "pytest"),
    **{"deepcopy": "copy", "reduce": "functools"},
}
"""Other such names. A task may be to write one of them, so they refer to a library only beside another free name."""
_ABBREVIATIONS = {"np": "numpy"}


def library(free: set[str], used_alone: set[str]) -> dict[str, tuple[str, str]]:
    """Return the free names of a test that a library defines, as name -> (module, name in it or "" for the module
    itself). `used_alone`: names that are not only used for their attributes."""
    origins = {}
    for name in free:
        if name in _CLASSES:
            origins[name] = (_CLASSES[name], name)
        elif name not in used_alone and (name in sys.stdlib_module_names or name in _ABBREVIATIONS):
            origins[name] = (_ABBREVIATIONS.get(name, name), "")
    if free - origins.keys() - _HELPERS.keys():
        origins.update((name, (_HELPERS[name], name)) for name in free & _HELPERS.keys() - origins.keys())
    return origins


def doubt(tree: ast.Module, free: frozenset[str]) -> str:
    """Return a doubt if one function of the candidate only checks the result of another, or "" otherwise. It is only a
    doubt, because the task may be to write both."""
    if len(free) < 2:
        return ""
    for node in ast.walk(tree):
        expression = node.test if isinstance(node, ast.Assert) else node.value if isinstance(node, ast.Expr) else None
        while isinstance(expression, ast.UnaryOp):
            expression = expression.operand
        if isinstance(expression, ast.Call) and _name(expression) in free:
            name = _name(expression)
            if any(_calls_another(value, name, free) for value in expression.args):
                return f"“{name[:80]}” is part of the tested code and would judge it. Define or import it in the test."
    return ""


def _calls_another(value: ast.expr, name: str, free: frozenset[str]) -> bool:
    return any(isinstance(inner, ast.Call) and _name(inner) in free - {name} for inner in ast.walk(value))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""
