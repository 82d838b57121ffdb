"""The rooms of the house, and what no file of it may hold."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from controlplane.serving.embedded import BASE_DIR as ROOT

FOLDERS = {"controlplane", "runs", "workers", "frontend", "docker", "tests", ".ci"}
FILES = {
    "manage.py",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "pyproject.toml",
    "requirements.lock",
    "requirements-test.lock",
    "requirements-train.lock",
    ".gitignore",
    ".dockerignore",
}
ATTICS = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}
LONGEST = 400
"""Lines of a module; above 300 it wants splitting, here it must be."""


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout: what belongs to the project can't be told from what lies beside it")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.exists()]


def texts() -> list[tuple[str, str]]:
    names = {".py", ".md", ".toml", ".lock", ".html", ".js", ".css", ".txt", ".yaml", ".yml", ""}
    return [(str(p.relative_to(ROOT)), p.read_text()) for p in tracked() if p.suffix in names]


def test_the_top_level_has_the_rooms_of_the_house_and_nothing_else() -> None:
    tops = {path.relative_to(ROOT).parts[0] for path in tracked()}
    assert tops <= FOLDERS | FILES
    assert tops >= FOLDERS


def test_no_module_is_named_for_nothing() -> None:
    assert [path.name for path in tracked() if path.name in ATTICS] == []


def test_no_module_has_grown_too_long_to_read() -> None:
    long = {str(p.relative_to(ROOT)): len(p.read_text().splitlines()) for p in tracked() if p.suffix == ".py"}
    assert {name: lines for name, lines in long.items() if lines > LONGEST} == {}


def test_no_file_names_a_machine_of_its_authors() -> None:
    machines = re.compile(r"/(work|opt/wheels|opt/pypi|root|home)/(?!\{)|deb\.debian\.org|pypi\.org|/opt/wheels")
    itself = "tests/architecture/test_layout.py"
    assert [f"{name}: {hit[0]}" for name, text in texts() if name != itself and (hit := machines.search(text))] == []


def test_nothing_swallows_every_exception_in_silence() -> None:
    silent = re.compile(r"except(?: Exception| BaseException)?:\s*pass\b")
    assert [name for name, text in texts() if name.endswith(".py") and silent.search(text)] == []
