"""The rooms of the house, and what no file of it may hold."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from controlplane.setup.serving.processes import BASE_DIR as ROOT

FOLDERS = {"controlplane", "runs", "workers", "frontend", "docker", "tests", ".ci"}
FILES = {
    "manage.py",
    "grpoctl",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
    "pyproject.toml",
    ".gitignore",
    ".dockerignore",
}
ATTICS = {"utils.py", "helpers.py", "common.py", "misc.py", "manager.py"}


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


INDEX = re.compile(r"https?://(?!\w+\.test/)[^\s\"'<>]+/simple\b")
"""A package index; one below the name .test stands for any."""


def places(*folders: Path) -> re.Pattern[str]:
    """Absolute paths of one machine: in these folders."""
    everywhere = {Path("/"), Path("/tmp"), Path("/usr"), Path("/var"), Path("/etc")}
    names = "|".join(re.escape(str(folder)) for folder in sorted({*folders} - everywhere))
    return re.compile(rf"(?<![\w.}}*-])({names or '(?!)'})(?=/(?!\{{))")


def places_here() -> re.Pattern[str]:
    """Where this checkout and its neighbours lie, the home, and the wheels that pip is told of."""
    wheels = [Path(word) for word in os.environ.get("PIP_FIND_LINKS", "").split() if word.startswith("/")]
    return places(ROOT, ROOT.parent, Path.home(), *wheels)


def test_no_file_names_a_machine_of_its_authors() -> None:
    here = places_here()
    found = [(name, here.search(text) or INDEX.search(text)) for name, text in texts()]
    assert [f"{name}: {hit[0]}" for name, hit in found if hit] == []


def test_paths_of_a_machine_and_package_indexes_are_noticed() -> None:
    somewhere = places(Path("/"), Path("/some/place"))
    assert somewhere.search('open("/some/place/x")')
    assert not somewhere.search("/elsewhere/x, here/some/place/x, /some/places/x")
    assert INDEX.search("--index-url " + "https://" + "index.example.org/simple")


def test_nothing_swallows_every_exception_in_silence() -> None:
    silent = re.compile(r"except(?: Exception| BaseException)?:\s*pass\b")
    assert [name for name, text in texts() if name.endswith(".py") and silent.search(text)] == []
