"""reasoning-gym in a fork of the sandbox: rows of its families, and its checkers on what a model wrote.

Some of its checkers evaluate an answer as Python. In the same process a hostile answer could then name its own score.
So `eval` in those families reads literals only, and sympy parses formulas only.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import inspect
import re
import sys
import types
import warnings
from collections.abc import Sequence
from typing import Any

LONGEST_ANSWER = 20_000
LONGEST_FORMULA = 2_000
_NAME = re.compile(r"(?<![A-Za-z0-9_.])[A-Za-z_]\w*")
_NAMES = frozenset(
    (
        *("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh"),
        *("atanh", "exp", "log", "ln", "sqrt", "Abs", "pi", "oo", "zoo", "nan", "Rational", "Integer", "Float"),
        *("Symbol", "Add", "Mul", "Pow", "Integral"),
    )
)
_NO_FORMULA = re.compile(r"""__|["'\\\[\]{};:@`$]|\.\s*[A-Za-z_]|\b(lambda|for|if|import)\b""")


class _Nothing(types.ModuleType):
    """Stands for matplotlib, with which one of the packages can draw: it is slow, starts threads, and wants to write
    into its user's home."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Nothing(name)

    def __call__(self, *args: object, **options: object) -> _Nothing:
        return self


class _NoPlots(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname.partition(".")[0] in ("matplotlib", "mpl_toolkits"):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Nothing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


sys.meta_path.insert(0, _NoPlots())
warnings.simplefilter("ignore")

import reasoning_gym  # noqa: E402
import sympy  # noqa: E402
from reasoning_gym.factory import CURRICULA, DATASETS  # noqa: E402

_parse = sympy.parse_expr


def _formula(text: Any, *args: Any, **options: Any) -> Any:
    """sympy.parse_expr, which evaluates its text, for formulas alone."""
    if not isinstance(text, str) or len(text) > LONGEST_FORMULA or _NO_FORMULA.search(text):
        raise ValueError("This is no formula.")
    if any(len(name) > 1 and name not in _NAMES for name in _NAME.findall(text)):
        raise ValueError("This is no formula.")
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
    """{"name", "title", "levels"}: levels of its curriculum, 0 without one."""
    return [
        {"name": name, "title": _title(made), "levels": _levels(name)}
        for name, (made, _) in sorted(DATASETS.items())
        if name != "composite"  # holds others, and has nothing of its own
    ]


def rows(name: str, seed: int, level: int, start: int, count: int) -> list[dict[str, Any]]:
    """Rows `start` and the following of a family: {"question", "answer", "metadata"} as the package made them."""
    made = _dataset(name, seed, level, start + count)
    return [_plain(made[index]) for index in range(start, start + count)]


def score(name: str, seed: int, level: int, entry: dict[str, Any], answer: str) -> float:
    return float(_dataset(name, seed, level, 1).score_answer(answer[:LONGEST_ANSWER], entry))


def scores(name: str, seed: int, level: int, entry: dict[str, Any], answers: Sequence[str]) -> list[float]:
    """For trials with answers of one's own."""
    return [score(name, seed, level, entry, answer) for answer in answers]


def _dataset(name: str, seed: int, level: int, size: int) -> Any:
    """`level`: of its curriculum, from 1; 0: the package's defaults."""
    if not level:
        return reasoning_gym.create_dataset(name, seed=seed, size=size)
    curriculum = CURRICULA[name]()
    curriculum.set_global_level(level - 1)
    config = curriculum.generate_configuration({"seed": seed, "size": size})
    if hasattr(config, "validate"):
        config.validate()
    return DATASETS[name][0](config=config)


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    return {"question": entry["question"], "answer": entry["answer"], "metadata": entry["metadata"]}


def _title(made: type) -> str:
    lines = (inspect.getdoc(made) or "").splitlines()
    return lines[0] if lines else ""


def _levels(name: str) -> int:
    if name not in CURRICULA:
        return 0
    return max((len(attribute.levels) for attribute in CURRICULA[name]().attributes.values()), default=0)
