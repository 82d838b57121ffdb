"""A pytest plugin: of long sets, a run of the tests takes a part, and the next commit another one.

Of the tests that start processes, browsers or trainers, a run takes a twelfth of each file's, and all of those marked
`every_run`. `@pytest.mark.rotating(of=4)` runs a quarter of a test's cases; `share(cases, of=4)` is a quarter of a list
that one test goes through; `@pytest.mark.in_turn(1, of=4)` leaves a whole file to one run in four. tests/README.md says
how to choose the slice and how to run everything.
"""

from __future__ import annotations

import os
import subprocess
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from xdist.workermanage import WorkerController

SLOW = ("browser", "processes", "trainer")
PARTS = 12
FULL, SLICE = "CI_FULL", "CI_SLICE"
LEFT_OUT = "rotation_left_out"
Case = TypeVar("Case")
_count = pytest.StashKey[int]()


def slice_number() -> int:
    """The number that chooses the slice: that of the environment, else one made of the commit, else of the day."""
    if SLICE not in os.environ:
        command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True).stdout[:7]
        number = int(commit, 16) if commit else datetime.now(UTC).toordinal()
        os.environ[SLICE] = str(number)  # workers of this run inherit it: all take the same slice
    return int(os.environ[SLICE])


def share(cases: Sequence[Case], *, of: int, name: str = "") -> list[Case]:
    """One of `of` parts of `cases`, every `of`-th one; all of them with CI_FULL=1. Lists whose `name` differs don't
    rotate in step."""
    return [case for number, case in enumerate(cases) if _is_on(number, of, name)]


def _is_on(number: int, of: int, name: str, turns: int = 1) -> bool:
    """Whether the run takes part `number` of `of`; of a file that is on in one run of `turns`, in these runs."""
    if os.environ.get(FULL):
        return True
    return (number + slice_number() // turns + zlib.crc32(name.encode())) % of == 0


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "rotating(of): a run takes one of `of` parts of the test's cases")
    config.addinivalue_line(
        "markers", "in_turn(turn, of): a file with a long set-up: one run in `of` takes tests of it"
    )
    config.addinivalue_line("markers", "every_run: slow, but never left to another run")
    slice_number()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen = any(".py" in argument for argument in config.args)
    left_out = set() if chosen else _of_other_slices(items)
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workeroutput"):
        config.workeroutput[LEFT_OUT] = len(left_out)
    config.stash[_count] = len(left_out)


def _of_other_slices(items: list[pytest.Item]) -> set[pytest.Item]:
    seen: Counter[str] = Counter()
    left_out = set()
    for item in items:
        long_set, of, turn, turns = _long_set(item)
        if not (_is_on(turn, turns, "") and _is_on(seen[long_set], of, long_set, turns)):
            left_out.add(item)
        seen[long_set] += 1
    return left_out


def _long_set(item: pytest.Item) -> tuple[str, int, int, int]:
    """The set that a test belongs to, in how many parts it is run (1: nothing is left to other runs), and the turn of
    its file: which of how many."""
    if marker := item.get_closest_marker("rotating"):
        return item.nodeid.partition("[")[0], marker.kwargs["of"], 0, 1
    if item.get_closest_marker("every_run") or not any(item.get_closest_marker(name) for name in SLOW):
        return "", 1, 0, 1
    file = item.nodeid.partition("::")[0]
    if marker := item.get_closest_marker("in_turn"):
        turns: int = marker.kwargs["of"]
        return file, PARTS // turns, marker.args[0], turns
    return file, PARTS, 0, 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController) -> None:
    """Each worker collects everything, so all leave out the same."""
    stash = node.config.stash
    stash[_count] = max(stash.get(_count, 0), getattr(node, "workeroutput", {}).get(LEFT_OUT, 0))


def pytest_report_header() -> str:
    whole = os.environ.get(FULL)
    return "long sets: whole" if whole else f"long sets: slice {slice_number()} ({SLICE} sets it, {FULL}=1 runs all)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := config.stash.get(_count, 0):
        terminalreporter.write_line(
            f"{count} tests of long sets left to other slices; {SLICE}={slice_number()} runs this one again, "
            f"{FULL}=1 runs all"
        )
