"""reasoning-gym in a fork of the sandbox: generates rows of its families, and checks a model's answers.

Some checkers evaluate an answer as Python, so that a hostile answer could set its own score. Therefore, `eval` in those
families reads literals only, and sympy parses formulas only.
"""

import ast
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
import warnings
from typing import Any

MAX_ANSWER_LENGTH = 20_000
MAX_FORMULA_LENGTH = 2_000
_NAME = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z_]\w*")
_NAMES = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
        *("atanh", "exp", "log", "ln", "sqrt", "Abs", "pi", "oo", "zoo", "nan", "Rational", "Integer", "Float"),
        *("Symbol", "Add", "Mul", "Pow", "Integral"),
    )
)
_NO_FORMULA = re.compile(r"""__|["'\\\[\]{};:@`$]|\.\s*[A-Za-z_]|\b(lambda|for|if|import)\b""")


class _DummyModule(types.ModuleType):
    """A replacement for matplotlib, which is slow, starts threads, and writes into the user's home folder."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _DummyModule(name)

    def __call__(self, *args: object, **options: object) -> "_DummyModule":
        return self


class _PlotBlocker(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname.partition(".")[0] in ("matplotlib", "mpl_toolkits"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _DummyModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _PlotBlocker())
warnings.simplefilter("ignore")

import reasoning_gym  # noqa: E402
import sympy  # noqa: E402
from reasoning_gym.factory import CURRICULA, DATASETS  # noqa: E402

_parse = sympy.parse_expr


def _formula(text: Any, *args: Any, **options: Any) -> Any:
    """Parse a formula with sympy.parse_expr, which evaluates its argument. Raises ValueError for non-formulas."""
    if not isinstance(text, str) or len(text) > MAX_FORMULA_LENGTH or _NO_FORMULA.search(text):
        raise ValueError("This is not a formula.")
    if any(len(name) > 1 and name not in _NAMES for name in _NAME.findall(text)):
        raise ValueError("This is not a formula.")
    return _parse(text, *args, **options)


def _literal(text: Any, *_: Any) -> Any:
    return ast.literal_eval(text)


def _make_safe() -> None:
    sympy.parse_expr = sympy.parsing.sympy_parser.parse_expr = _formula
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym."):
            if getattr(module, "parse_expr", None) is _parse:
                module.parse_expr = _formula  # type: ignore[attr-defined]
            if name.rpartition(".")[2] in ("string_insertion", "spiral_matrix", "binary_matrix", "n_queens"):
                module.eval = _literal  # type: ignore[attr-defined]


_make_safe()


def families() -> list[dict[str, Any]]:
    """Return each family's {"name", "title", "levels"}; `levels` is 0 for a family without a curriculum."""
    return [
        {"name": name, "title": ((inspect.getdoc(dataset) or "").splitlines() or [""])[0], "levels": _levels(name)}
        for name, (dataset, _) in sorted(DATASETS.items())
        if name != "composite"  # a mixture of the others
    ]


def rows(name: str, seed: int, level: int, start: int, count: int) -> list[dict[str, Any]]:
    """Return `count` rows of a family from index `start`, as the package's {"question", "answer", "metadata"}."""
    dataset = _dataset(name, seed, level, start + count)
    entries = (dataset[index] for index in range(start, start + count))
    return [{key: entry[key] for key in ("question", "answer", "metadata")} for entry in entries]


def score(name: str, seed: int, level: int, entry: dict[str, Any], answer: str) -> float:
    """Score an answer to a row with the family's own checker."""
    return float(_dataset(name, seed, level, 1).score_answer(answer[:MAX_ANSWER_LENGTH], entry))


def _dataset(name: str, seed: int, level: int, size: int) -> Any:
    """Create a family's dataset. `level`: level of its curriculum, from 1; 0 for the package's defaults."""
    if not level:
        return reasoning_gym.create_dataset(name, seed=seed, size=size)
    curriculum = CURRICULA[name]()
    curriculum.set_global_level(level - 1)
    config = curriculum.generate_configuration({"seed": seed, "size": size})
    if hasattr(config, "validate"):
        config.validate()
    return DATASETS[name][0](config=config)


def _levels(name: str) -> int:
    if name not in CURRICULA:
        return 0
    return max((len(attribute.levels) for attribute in CURRICULA[name]().attributes.values()), default=0)
