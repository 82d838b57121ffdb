"""The state of the source code in figures: its size, how its modules depend on each other, what is out of shape.

The product is the Python of controlplane, runs, workers and manage.py, without migrations. Imports count wherever they
stand, inside functions and under `if TYPE_CHECKING` too. A room is a package with modules of its own; its neighbours
are the packages that it imports from, as they are seen from it: of its own wing each room counts, of another wing the
wing as a whole. `offenders` names what each figure counted. tests/architecture/test_house.py holds the bounds.
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
from tests.benchmarks._settings_named import settings_read, settings_without_readme

PACKAGES = ("controlplane", "runs", "workers")
COMPOSITION_ROOT = tuple(
    f"controlplane.{name}" for name in ("settings", "asgi", "urls", "celery", "setup.management", "setup.serving")
)
"""The modules that put the program together, and may therefore import from everywhere."""
SHORT = 40
LONG_FUNCTION = 40
WIDE = 160
FLOORS = {
    "controlplane": (("platform",), ("catalogue",), ("setup",)),
    "runs": (("engine",), ("insight",), ("intake", "launch"), ("pages",), ("housekeeping",), ("api",)),
    "workers": (
        ("contract", "diagnosis", "outbound"),
        ("sandbox",),
        ("packages",),
        ("rewards",),
        ("artifactstore", "environments", "settings"),
        ("models",),
        ("sinks", "supervisor", "trainer"),
        ("host",),
    ),
}
"""Wings from the ground up, as the import contracts in pyproject.toml have them; those on one floor import nothing of
each other."""
LEAVES = "runs.pages"
"""The wing whose rooms import nothing of each other."""


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
        "upward_imports": _counted(_upward_imports(imports)),
        "controlplane_imports_runs": _counted(_imports_of_runs(imports)),
        "files_under_40_lines": _counted(_short_files(modules)),
        "class_names_in_several_modules": _counted(_shared_class_names(modules)),
        "functions_over_40_lines": _counted(_long_functions(modules)),
        "largest_room_modules": _largest(_room_modules(modules)),
        "most_neighbours": _largest(_neighbours(modules, imports)),
        "longest_module": Figure(longest.lines, [longest.name]),
        "css_lines": Figure(_lines(root, "frontend/static/css", "*.css"), []),
        "template_conditions": Figure(_conditions(root), []),
        "template_lines_over_160": _counted(_wide_template_lines(root)),
        "readme_lines": Figure(_lines(root, ".", "README.md", deep=False), []),
        "changelog_lines": Figure(_lines(root, ".", "CHANGELOG.md", deep=False), []),
        "settings": _counted(iter(sorted(settings_read(root)))),
        "settings_without_readme": _counted(iter(settings_without_readme(root))),
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
    for node in ast.walk(module.tree):
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


def _upward_imports(imports: dict[str, set[str]]) -> Iterator[str]:
    """Imports of a higher floor, of another wing on the same floor, or of another room of the leaves."""
    for name, imported in imports.items():
        yield from (f"{name} imports {other}" for other in sorted(imported) if _is_upward(name, other))


def _is_upward(name: str, other: str) -> bool:
    here, there = _floor(name), _floor(other)
    if name.split(".")[0] != other.split(".")[0] or here is None or there is None:
        return False
    if _wing(name) == LEAVES == _wing(other):
        return name.split(".")[2] != other.split(".")[2]
    return there > here or (there == here and _wing(name) != _wing(other))


def _wing(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _floor(name: str) -> int | None:
    """The floor of a module's wing; None: it belongs to none, as what puts the program together."""
    top, _, rest = name.partition(".")
    floors = FLOORS.get(top, ())
    return next((number for number, wings in enumerate(floors) if rest.partition(".")[0] in wings), None)


def _room_modules(modules: list[Module]) -> dict[str, list[str]]:
    rooms = defaultdict(list)
    for module in modules:
        if module.path.name != "__init__.py" and module.package:
            rooms[module.package].append(module.name)
    return rooms


def _neighbours(modules: list[Module], imports: dict[str, set[str]]) -> dict[str, list[str]]:
    packages = {module.name: module.package for module in modules}
    seen: dict[str, set[str]] = defaultdict(set)
    for name, imported in imports.items():
        room = packages[name]
        seen[room] |= {_seen_from(room, packages[other]) for other in imported} - {""}
    return {room: sorted(others) for room, others in seen.items()}


def _seen_from(room: str, other: str) -> str:
    """The neighbour that the package `other` belongs to, seen from `room`; "" if it is the room or lies around it."""
    here, there = room.split("."), other.split(".")
    shared = next((n for n, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), min(len(here), len(there)))
    return "" if shared == len(there) else ".".join(there[: max(shared + 1, 2)])


def _largest(rooms: dict[str, list[str]]) -> Figure:
    room = max(rooms, key=lambda name: len(rooms[name]), default="")
    return Figure(len(rooms.get(room, [])), [f"{room}: {' '.join(rooms.get(room, []))}"])


def _long_functions(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                lines = node.end_lineno - node.lineno + 1
                if lines > LONG_FUNCTION:
                    yield f"{module.name}.{node.name} ({lines})"


def _lines(root: Path, folder: str, pattern: str, *, deep: bool = True) -> int:
    paths = (root / folder).rglob(pattern) if deep else (root / folder).glob(pattern)
    return sum(len(path.read_text().splitlines()) for path in paths)


def _conditions(root: Path) -> int:
    """How often templates decide: their `if` and `elif` tags."""
    templates = (root / "frontend" / "templates").rglob("*.html")
    return sum(len(re.findall(r"{% (?:el)?if ", path.read_text())) for path in templates)


def _is_under(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def _short_files(modules: list[Module]) -> Iterator[str]:
    for module in modules:
        if module.lines < SHORT and module.path.name not in ("__init__.py", "apps.py"):
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
