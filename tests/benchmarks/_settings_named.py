"""The environment variables that the product reads, compared with those that its READMEs name.

Standard library only, and read from the source alone: it works on any checkout.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

PACKAGES = ("controlplane", "runs", "workers")
SCRIPTS = ("manage.py", "grpoctl")
DOCUMENTED = (*PACKAGES, "frontend", "docker")
"""Folders whose Markdown files count, beside the README at the root."""
OURS = re.compile(r"(CONTROLPLANE|GRPO|GRPOCTL)_[A-Z0-9_]+")
VARIABLE = re.compile(r"[A-Z][A-Z0-9_]+")
HOST_SETTINGS = "HostSettings"
"""A class each of whose fields is GRPO_ and its name in capitals."""


def settings_without_readme(root: Path) -> list[str]:
    """Name the variables that code reads and no README mentions, sorted."""
    return sorted(settings_read(root) - settings_named(root))


def settings_read(root: Path) -> set[str]:
    """Collect the variables that the product reads.

    Every string that is a name of ours counts; other programs' names count where they are taken from os.environ or
    another mapping called env, environ or environment.
    """
    return {name for path in _sources(root) for name in _names_in(ast.parse(path.read_text()))}


def settings_named(root: Path) -> set[str]:
    pages = [root / "README.md", *(page for folder in DOCUMENTED for page in (root / folder).rglob("*.md"))]
    texts = [page.read_text() for page in pages if page.is_file() and "node_modules" not in page.parts]
    return {name for text in texts for name in VARIABLE.findall(text)}


def _sources(root: Path) -> Iterator[Path]:
    yield from (root / name for name in SCRIPTS if (root / name).is_file())
    for package in PACKAGES:
        yield from sorted((root / package).rglob("*.py"))


def _names_in(tree: ast.Module) -> Iterator[str]:
    constants = _constants(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and OURS.fullmatch(node.value):
            yield node.value
        elif isinstance(node, ast.ClassDef) and node.name == HOST_SETTINGS:
            yield from (f"GRPO_{field.upper()}" for field in _fields(node))
        elif isinstance(node, ast.FunctionDef):
            yield from _completed_by_callers(node, tree)
        else:
            name = _text(_key(node), constants)
            if name and VARIABLE.fullmatch(name):
                yield name


def _constants(tree: ast.Module) -> dict[str, str]:
    """The module's names for strings."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
    pairs = [pair for node in assigned for target in node.targets for pair in _pairs(target, node.value)]
    return {
        target.id: value.value
        for target, value in pairs
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        return list(zip(target.elts, value.elts, strict=False))
    return [(target, value)]


def _fields(node: ast.ClassDef) -> list[str]:
    lines = [line for line in node.body if isinstance(line, ast.AnnAssign)]
    return [line.target.id for line in lines if isinstance(line.target, ast.Name)]


def _completed_by_callers(function: ast.FunctionDef, tree: ast.Module) -> Iterator[str]:
    """Yield the names that a function makes of a beginning of ours and its first argument."""
    beginnings = {
        node.values[0].value
        for node in ast.walk(function)
        if isinstance(node, ast.JoinedStr) and len(node.values) == 2 and isinstance(node.values[0], ast.Constant)
    }
    for beginning in (text for text in beginnings if isinstance(text, str) and OURS.fullmatch(f"{text}X")):
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            ending = _text(call.args[0], {}) if ast.unparse(call.func) == function.name and call.args else ""
            if VARIABLE.fullmatch(ending):
                yield f"{beginning}{ending}"


def _key(node: ast.AST) -> ast.expr | None:
    """The key that is read from an environment; None if the node reads none."""
    match node:
        case ast.Subscript(value=mapping, slice=key, ctx=ast.Load()) if _is_environment(mapping):
            return key
        case ast.Call(func=ast.Attribute(mapping, "get" | "pop"), args=[key, *_]) if _is_environment(mapping):
            return key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[mapping]) if _is_environment(mapping):
            return key
    return None


def _is_environment(node: ast.expr) -> bool:
    return ast.unparse(node).rpartition(".")[2] in {"env", "environ", "environment"}


def _text(node: ast.expr | None, constants: dict[str, str]) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return constants.get(node.id, "") if isinstance(node, ast.Name) else ""
