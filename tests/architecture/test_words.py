"""Docstrings of functions begin with a verb in the imperative, and names say what a value is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from controlplane.setup.serving.processes import BASE_DIR as ROOT

PACKAGES = ("controlplane", "runs", "workers")
VERBS = frozenset((Path(__file__).parent / "verbs.txt").read_text().split())
"""Add a verb when a docstring needs one. Properties and parameters of __init__ are described by nouns."""
VAGUE = {"one": 0}
"""Names that say nothing of a value, with how often each may still stand as a variable, parameter or function."""


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield path.relative_to(ROOT), ast.parse(path.read_text())


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_docstrings_of_functions_begin_with_a_verb() -> None:
    others = []
    for path, tree in trees():
        for function in functions(tree):
            text = ast.get_docstring(function)
            described_by_nouns = function.name in ("__init__", "__post_init__") or any(
                "property" in ast.unparse(decorator) for decorator in function.decorator_list
            )
            if text and not described_by_nouns and text.split()[0].rstrip(".,:;") not in VERBS:
                others.append(f"{path}:{function.lineno} {text.splitlines()[0]}")
    assert others == []


def bound_names(tree: ast.Module) -> Iterator[str]:
    """Names of variables, parameters and functions, once each in a module."""
    names = {function.name for function in functions(tree)}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return iter(name.strip("_") for name in names)


def test_vague_names_become_fewer() -> None:
    counts = Counter(name for _, tree in trees() for name in bound_names(tree) if name in VAGUE)
    assert {name: count for name, count in counts.items() if count > VAGUE[name]} == {}
