"""Names that a test uses without binding them: which ones belong to a library, and which may be the candidate's own
word on its results."""

from __future__ import annotations

import ast
import sys

_CLASSES = {
    **dict.fromkeys(("Counter", "OrderedDict", "defaultdict", "deque", "namedtuple"), "collections"),
    **{"Fraction": "fractions", "Decimal": "decimal", "timedelta": "datetime", "date": "datetime"},
}
"""Names that tests use without an import. They are the library's: the candidate's own would decide what is expected."""
_HELPERS = {
    **dict.fromkeys(("isclose", "sqrt", "fabs", "ceil", "floor", "pi", "inf", "nan", "isnan", "isinf"), "math"),
    **dict.fromkeys(("exp", "log", "sin", "cos", "tan", "hypot", "radians", "degrees"), "math"),
    **dict.fromkeys(("assert_allclose", "assert_array_equal", "assert_almost_equal", "assert_equal"), "numpy.testing"),
    **dict.fromkeys(("assert_array_almost_equal", "assert_array_less"), "numpy.testing"),
    **dict.fromkeys(("allclose", "array_equal"), "numpy"),
    **dict.fromkeys(("approx", "raises"), "pytest"),
    **{"deepcopy": "copy", "reduce": "functools"},
}
"""Like _CLASSES, but the task may be to write one of them: the library's only where there is another free name."""
_SHORT = {"np": "numpy"}


def library(free: set[str], bare: set[str]) -> dict[str, tuple[str, str]]:
    """Those of a test's free names that a library defines: (module, name in it; "" for the module itself). `bare`:
    names that are used for more than an attribute."""
    found = {}
    for name in free:
        if name in _CLASSES:
            found[name] = (_CLASSES[name], name)
        elif name not in bare and (name in sys.stdlib_module_names or name in _SHORT):
            found[name] = (_SHORT.get(name, name), "")
    if free - found.keys() - _HELPERS.keys():
        found.update((name, (_HELPERS[name], name)) for name in free & _HELPERS.keys() - found.keys())
    return found


def doubt(tree: ast.Module, free: frozenset[str]) -> str:
    """Whether one of the candidate's functions only checks what another one returns. The task may be to write both, so
    this is no more than a doubt."""
    if len(free) < 2:
        return ""
    for node in ast.walk(tree):
        shown = node.test if isinstance(node, ast.Assert) else node.value if isinstance(node, ast.Expr) else None
        while isinstance(shown, ast.UnaryOp):
            shown = shown.operand
        if isinstance(shown, ast.Call) and _name(shown) in free:
            name = _name(shown)
            if any(_asks_another(value, name, free) for value in shown.args):
                return f"“{name[:80]}” is part of the tested code and would judge it: define or import it in the test."
    return ""


def _asks_another(value: ast.expr, name: str, free: frozenset[str]) -> bool:
    return any(isinstance(one, ast.Call) and _name(one) in free - {name} for one in ast.walk(value))


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""
