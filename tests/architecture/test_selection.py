"""Which tests a run takes."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.setup.management.commands.test import BY_FILE, pytest_arguments, workers
from tests import selection


@dataclass(frozen=True)
class Item:
    """A test, as far as the plugin looks at it."""

    nodeid: str
    get_closest_marker: Callable[[str], pytest.Mark | None]


def an_item(nodeid: str, *names: str) -> Item:
    marks = {name: getattr(pytest.mark, name).mark for name in names}
    return Item(nodeid, marks.get)


@pytest.mark.parametrize(
    ("names", "ways", "taken"),
    [
        ((), (), True),
        (("processes",), (), False),
        (("browser", "processes"), (), False),
        (("trainer", "telling"), (), True),
        (("processes",), ("tests/rooms",), True),
        (("processes",), ("tests/rooms/test_a.py",), True),
        (("processes",), ("tests/room",), False),
    ],
)
def test_a_run_takes_fast_tests_telling_ways_and_those_asked_for(
    names: tuple[str, ...], ways: tuple[str, ...], taken: bool
) -> None:
    item = an_item("tests/rooms/test_a.py::test_b[c]", *names)
    assert selection.is_chosen(item, ways) is taken  # type: ignore[arg-type]


def test_workers_take_the_whole_ways_of_named_files(tmp_path: Path) -> None:
    file = tmp_path / "test_way.py"
    file.write_text("import pytest\n@pytest.mark.processes\ndef test_way(): ...\n")
    options = ("-c", os.devnull, f"--rootdir={tmp_path}", "-p", "no:django", "-p", "tests.selection", "-q", "-n", "1")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, file], cwd=selection.ROOT, capture_output=True, text=True
    )
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_at_most_twenty_ways_are_telling_and_each_is_a_whole_way() -> None:
    marked = list(_telling())
    assert 0 < len(marked) <= selection.MOST_TELLING
    assert [file for file, source in marked if not any(f"mark.{name}" in source for name in selection.WHOLE_WAYS)] == []


def _telling() -> Iterator[tuple[str, str]]:
    """(file, its source) for every test function that is marked."""
    for path in sorted((selection.ROOT / "tests").rglob("test_*.py")):
        source = path.read_text()
        if f"@pytest.mark.{selection.TELLING}\n" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = [ast.unparse(decorator) for decorator in node.decorator_list]
                if f"pytest.mark.{selection.TELLING}" in marks:
                    yield str(path), source


PARALLEL = (f"-n{workers()}", *BY_FILE)


@pytest.mark.parametrize(
    ("given", "parallel"),
    [
        ([], True),
        (["-q", "-x"], True),
        (["--all"], True),
        (["--changed", "HEAD"], True),
        (["-k", "runs"], True),
        (["--ways", "tests/faults"], True),
        (["tests/runs"], False),
        (["-x", "tests/architecture/test_selection.py::test_a"], False),
        (["-n", "0"], False),
        (["-n4"], False),
        (["--version"], False),
    ],
)
def test_a_run_is_parallel_unless_paths_or_workers_are_named(given: list[str], parallel: bool) -> None:
    arguments = pytest_arguments(given)
    assert arguments[: len(PARALLEL)] == list(PARALLEL) if parallel else arguments == given


def test_postgres_comes_before_what_is_named() -> None:
    assert pytest_arguments(["--postgres", "tests/runs"])[-1] == "tests/runs"
    assert "tests.on_postgres" in pytest_arguments(["--postgres", "tests/runs"])
