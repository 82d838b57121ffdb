"""A pytest plugin: chooses which tests a run takes.

There are fast tests and whole ways, which start processes, browsers or trainers. A run without paths takes the fast
ones and the whole ways marked `telling`; `--all` takes everything, `--ways` adds the whole ways of some files or
folders, `--changed` takes what a change touches. Paths that are named run whole. tests/README.md has examples.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import changes

WHOLE_WAYS = ("browser", "processes", "trainer")
TELLING = "telling"
MOST_TELLING = 20
"""At most so many test functions may be marked: together they take a few minutes."""
SELECTION = "selection"
ROOT = Path(__file__).parent.parent
COLLECTED = pytest.StashKey[int]()
"""The number of all cases, chosen or not; only of a run without paths."""
_left_out = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection")
    group.addoption("--all", action="store_true", dest="everything", help="run every whole way, not the telling ones")
    group.addoption("--ways", metavar="PATHS", default="", help="also run the whole ways of these (comma-separated)")
    group.addoption("--changed", metavar="REV", nargs="?", const=changes.SINCE_MAIN, help="run what a change touches")


def pytest_configure(config: pytest.Config) -> None:
    """Decide once; a worker of xdist takes over what was decided."""
    config.addinivalue_line("markers", "telling: one of the whole ways that every run takes")
    if hasattr(config, "workerinput"):
        config.args[:], config.option.everything, config.option.ways = config.workerinput[SELECTION]
        return
    if config.option.changed:
        _take_changed(config)
    elif config.args_source is pytest.Config.ArgsSource.ARGS:
        config.option.everything = True


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Hand the decision to a worker of xdist, which knows only the command line."""
    option = node.config.option
    node.workerinput[SELECTION] = (node.config.args, option.everything, option.ways)


def _take_changed(config: pytest.Config) -> None:
    touched = changes.touched(ROOT, config.option.changed)
    if touched.default:
        config.option.ways = ",".join(touched.files)
    elif touched.files:
        config.args[:] = touched.files
        config.option.everything = True
    else:
        pytest.exit("No test covers what has changed.", returncode=0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.stash[COLLECTED] = len(items)
    if config.option.everything:
        return
    ways = tuple(path for path in config.option.ways.split(",") if path)
    chosen = [item for item in items if is_chosen(item, ways)]
    if left_out := len(items) - len(chosen):
        config.hook.pytest_deselected(items=sorted(set(items) - set(chosen), key=items.index))
        items[:] = chosen
    config.stash[_left_out] = left_out


def is_chosen(item: pytest.Item, ways: tuple[str, ...]) -> bool:
    """True for a fast test, a telling whole way, and every whole way below one of the paths `ways`."""
    if not is_whole_way(item) or item.get_closest_marker(TELLING):
        return True
    file = item.nodeid.partition("::")[0]
    return any(file == path or file.startswith(f"{path.rstrip('/')}/") for path in ways)


def is_whole_way(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in WHOLE_WAYS)


def pytest_report_header(config: pytest.Config) -> str:
    if config.option.everything:
        return "tests: all that were named" if config.args_source.name == "ARGS" else "tests: all"
    ways = config.option.ways.replace(",", ", ")
    return f"tests: the fast ones and the telling whole ways{', and those of ' + ways if ways else ''} (--all: all)"
