"""The state of the source code in figures: its size, how its modules depend on each other, what is out of shape.

The product is the Python of controlplane, runs, workers and manage.py, without migrations. Imports count wherever they
stand, inside functions too, except under `if TYPE_CHECKING`. `offenders` names
what each figure counted.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from controlplane.setup.serving.processes import BASE_DIR

PACKAGES = ("controlplane", "runs", "workers")
COMPOSITION_ROOT = tuple(
    f"controlplane.{name}" for name in ("settings", "asgi", "urls", "celery", "management", "serving")
)
"""The modules that put the program together, and may therefore import from everywhere."""
SHORT = 40
WIDE = 160


@dataclass(frozen=True)
class Module:
    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def package(self) -> str:
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]


@dataclass(frozen=True)
class Figure:
    value: int
    offenders: list[str]


def main(argv: list[str] | None = None) -> dict[str, Any]:
    root = _options(argv or []).root.resolve()
    measured = figures(root)
    return {
        **{name: figure.value for name, figure in measured.items()},
        "test_cases": _test_cases(root),
        "offenders": {name: figure.offenders for name, figure in measured.items() if figure.offenders},
    }


def _options(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="manage.py bench house", description=__doc__)
    parser.add_argument("--root", type=Path, default=BASE_DIR, help="measure another checkout")
    return parser.parse_args(argv)


def figures(root: Path) -> dict[str, Figure]:
    modules = product(root)
    imports = import_graph(modules)
    longest = max(modules, key=lambda module: module.lines)
    return {
        "product_python_lines": Figure(sum(module.lines for module in modules), []),
        "import_cycles": _counted(" ".join(cycle) for cycle in cycles(imports)),
        "controlplane_imports_runs": _counted(_imports_of_runs(imports)),
        "files_under_40_lines": _counted(_short_files(modules)),
        "class_names_in_several_modules": _counted(_shared_class_names(modules)),
        "template_lines_over_160": _counted(_wide_template_lines(root)),
        "longest_module": Figure(longest.lines, [longest.name]),
    }


def product(root: Path) -> list[Module]:
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [
        Module(".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"), path)
        for path in [*paths, root / "manage.py"]
        if "migrations" not in path.parts
    ]


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """The modules of the product that each of them imports."""
    names = {module.name for module in modules}
    return {module.name: (set(_imported(module, names)) & names) - {module.name} for module in modules}


def _imported(module: Module, names: set[str]) -> Iterator[str]:
    for node in _at_run_time(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, module.package)
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                yield submodule if submodule in names else source


def _source(node: ast.ImportFrom, package: str) -> str:
    """The module that `from ... import` names, also where it is relative."""
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])


def _at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """Everything below a node, without the bodies of `if TYPE_CHECKING`."""
    yield node
    for child in node.orelse if _is_type_checking(node) else ast.iter_child_nodes(node):  # type: ignore[attr-defined]
        yield from _at_run_time(child)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def cycles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Sets of modules that all reach each other, sorted."""
    reached = {name: _reachable(name, imports) for name in imports}
    found = {frozenset(other for other in reached[name] if name in reached[other]) for name in imports}
    return sorted(sorted(cycle) for cycle in found if cycle)


def _reachable(name: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    open_ = [name]
    while open_:
        new = imports[open_.pop()] - reached
        reached |= new
        open_.extend(new)
    return reached


def _imports_of_runs(imports: dict[str, set[str]]) -> Iterator[str]:
    for name, imported in imports.items():
        if _is_under(name, ("controlplane",)) and not _is_under(name, COMPOSITION_ROOT):
            yield from (f"{name} imports {other}" for other in sorted(imported) if _is_under(other, ("runs",)))


def _is_under(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _short_files(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        if module.lines < SHORT and module.path.name != "__init__.py":
            yield f"{module.name} ({module.lines})"


def _shared_class_names(modules: list[Module]) -> Iterator[str]:
    places = defaultdict(set)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].add(module.name)
    for name, owners in sorted(places.items()):
        # Django requires every command to be a class with this name.
        if len(owners) > 1 and name != "Command":
            yield f"{name}: {' '.join(sorted(owners))}"


def _wide_template_lines(root: Path) -> Iterator[str]:
    for path in sorted((root / "frontend" / "templates").rglob("*.html")):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            if len(line) > WIDE:
                yield f"{path.relative_to(root)}:{number} ({len(line)})"


def _counted(offenders: Iterator[str]) -> Figure:
    named = list(offenders)
    return Figure(len(named), named)


def _test_cases(root: Path) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "--all"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    count = re.search(r"^(?:\d+/)?(\d+) tests? collected", done.stdout, re.MULTILINE)
    if count is None:
        raise RuntimeError(f"pytest did not say how many tests it collected: {done.stdout[-2000:]}")
    return int(count[1])
