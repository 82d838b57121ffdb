"""Which tests a change touches, on a small made-up house."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests import changes

ABOVE = {
    "runs.engine.states": [
        "runs.queue.order",
        "runs.pages.views",
        "tests.runs.builders",
        "tests.runs.queue.test_order",
    ],
    "runs.queue.order": ["runs.pages.views", "tests.runs.queue.test_order", "tests.faults.test_kills"],
    "tests.runs.builders": ["tests.runs.queue.test_order", "tests.faults.test_kills"],
}
"""Module -> what imports it, at first or second hand."""
FILES = [
    "tests/architecture/test_layout.py",
    "tests/browser/test_pages.py",
    "tests/browser/test_charts.py",
    "tests/docker/test_images.py",
    "tests/faults/test_kills.py",
    "tests/js/test_node.py",
    "tests/runs/builders.py",
    "tests/runs/engine/test_states.py",
    "tests/runs/queue/test_order.py",
    "tests/runs/pages/test_views.py",
]


@pytest.mark.parametrize(
    ("changed", "touched"),
    [
        ("runs/engine/states.py", {"runs/engine/test_states", "runs/queue/test_order", "runs/pages/test_views"}),
        ("runs/queue/order.py", {"runs/queue/test_order", "runs/pages/test_views", "faults/test_kills"}),
        ("runs/pages/views.py", {"runs/pages/test_views"}),
        ("tests/runs/builders.py", {"runs/queue/test_order", "faults/test_kills"}),
        ("tests/faults/test_kills.py", {"faults/test_kills"}),
        ("frontend/templates/wing/pages/list.html", {"runs/pages/test_views", "browser/test_pages"}),
        ("frontend/static/css/wing/pages.css", {"runs/pages/test_views", "browser/test_pages"}),
        ("frontend/static/css/tokens.css", {"browser/test_pages", "browser/test_charts"}),
        ("frontend/static/js/frame.js", {"browser/test_pages", "browser/test_charts", "js/test_node"}),
        ("docker/web.Dockerfile", {"docker/test_images"}),
        ("runs/README.md", set()),
        ("LICENSE", None),
    ],
)
def test_a_change_touches_its_rooms_and_those_above(changed: str, touched: set[str] | None) -> None:
    found = changes.tests_of([changed], FILES, lambda module: ABOVE.get(module, []))
    always = {"tests/architecture/test_layout.py"}
    assert set(found.files) == (set() if touched is None else always | {f"tests/{name}.py" for name in touched})
    assert not found.default


@pytest.mark.parametrize("path", ["pyproject.toml", "requirements.lock", "tests/conftest.py", ".ci/run"])
def test_a_change_below_everything_runs_what_a_run_without_paths_does(path: str) -> None:
    assert changes.tests_of([path], FILES, lambda module: []).default


def test_the_patterns_meet_files_of_this_house() -> None:
    listed = changes._git(Path(__file__).parents[2], "ls-files").split()
    for pattern in (*changes.DEFAULT, *changes.COVERED, *changes.ALWAYS):
        assert [path for path in listed if changes._matches(path, [pattern])], pattern


def test_what_differs_from_main_is_found_committed_or_not(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "old.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "a")
    git("checkout", "-b", "mine")
    (tmp_path / "committed.py").write_text("1")
    git("add", ".")
    git("commit", "-m", "b")
    (tmp_path / "new.py").write_text("1")
    (tmp_path / "old.py").write_text("2")
    assert changes.changed_files(tmp_path, changes.SINCE_MAIN) == ["committed.py", "new.py", "old.py"]
    assert changes.changed_files(tmp_path, "HEAD") == ["new.py", "old.py"]
