"""The test files that a change touches: those of its rooms, and of the rooms above them by the import graph."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

PACKAGES = ("controlplane", "runs", "workers", "tests")
SINCE_MAIN = "main..."
"""Everything since the branch left main, and what is not committed yet."""
DEFAULT = (
    *("pyproject.toml", "manage.py", "*.lock", ".ci/*"),
    *("tests/conftest.py", "tests/environment.py", "tests/migrated.py", "tests/reader_in_process.py"),
    *("controlplane/settings.py", "controlplane/urls.py"),
)
"""Files below everything: a change to one of them runs what a run without paths does."""
ALWAYS = ("tests/architecture/*",)
"""Tests of the whole tree."""
COVERED = {
    "*.md": ("tests/architecture/*",),
    "docker/*": ("tests/docker/*",),
    "frontend/static/js/*": ("tests/js/*",),
    "frontend/templates/base.html": ("tests/browser/*",),
    "frontend/templates/components/*": ("tests/browser/*",),
}
"""Files that no test imports, by the tests that read them."""
FRONTEND = ("frontend/templates", "frontend/static/js", "frontend/static/css")
"""Folders of wings, whose folders and files are named for pages: pages/run_page/head.html and pages/run_page.css are
the run page's."""


@dataclass(frozen=True)
class Touched:
    """Test files to run, each whole; `default`: beside what a run without paths takes."""

    files: Sequence[str]
    default: bool = False


def touched(root: Path, revision: str) -> Touched:
    """The tests for everything that differs from `revision` in a checkout at `root`."""
    import grimp

    names = sorted(package for package in PACKAGES if (root / package / "__init__.py").exists())
    graph = grimp.build_graph(*names, cache_dir=None, exclude_type_checking_imports=True)

    def importers(module: str) -> Iterable[str]:
        return graph.find_downstream_modules(module) if module in graph.modules else ()

    return tests_of(changed_files(root, revision), _tracked(root), importers)


def changed_files(root: Path, revision: str) -> list[str]:
    """Paths that differ from `revision`, uncommitted and new ones included; `main...`: where the branch left main."""
    base = revision
    if revision.endswith("..."):
        base = _git(root, "merge-base", revision.removesuffix("..."), "HEAD").strip()
    different = _git(root, "diff", "--name-only", "--no-renames", "-z", base)
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return sorted({path for path in (different + new).split("\0") if path})


def _tracked(root: Path) -> list[str]:
    listed = _git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "tests").split("\0")
    return sorted(path for path in listed if path and (root / path).exists())


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def tests_of(changed: Iterable[str], files: Iterable[str], importers: Callable[[str], Iterable[str]]) -> Touched:
    """The tests among `files` for the `changed` paths; `importers` are the modules above a module."""
    tests = [path for path in files if PurePosixPath(path).match("test_*.py")]
    chosen: set[str] = set()
    default = False
    for path in changed:
        default |= _matches(path, DEFAULT)
        chosen |= {test for test in tests if _matches(test, _covering(path))}
        if path.endswith(".py"):
            chosen |= _of_modules(_module(path), importers, tests)
        elif room := _room_of_page(path):
            chosen |= _of_page(room, tests)
    if chosen:
        chosen |= {test for test in tests if _matches(test, ALWAYS)}
    return Touched(sorted(chosen), default)


def _matches(path: str, patterns: Iterable[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _covering(path: str) -> list[str]:
    return [test for pattern, tests in COVERED.items() if fnmatch(path, pattern) for test in tests]


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _of_modules(changed: str, importers: Callable[[str], Iterable[str]], tests: list[str]) -> set[str]:
    """Test files that are, or import, one of the modules, and those in the folders that mirror the modules' rooms."""
    modules = {changed, *importers(changed)}
    mirrors = {f"tests/{_folder(module)}" for module in modules if not module.startswith("tests.")}
    return {test for test in tests if _module(test) in modules or str(PurePosixPath(test).parent) in mirrors}


def _folder(module: str) -> str:
    return module.rpartition(".")[0].replace(".", "/")


def _room_of_page(path: str) -> str:
    """`run_page` for frontend/static/js/pages/run_page/logs.js; empty for other files, and for those of all pages."""
    for folder in FRONTEND:
        if path.startswith(f"{folder}/"):
            parts = PurePosixPath(path.removeprefix(f"{folder}/")).parts
            return parts[1 if len(parts) > 1 else 0].partition(".")[0]
    return ""


def _of_page(room: str, tests: list[str]) -> set[str]:
    """Tests in a folder of the page's name, and browser files named for it; all of them if none is."""
    browser = {test for test in tests if test.startswith("tests/browser/")}
    named = {test for test in browser if PurePosixPath(test).stem.startswith(f"test_{room}")}
    return {test for test in tests if PurePosixPath(test).parent.name == room} | (named or browser)
