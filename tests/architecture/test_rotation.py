"""What a run leaves to others is run by one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests import rotation

FILE = "tests/a.py"


@dataclass(frozen=True)
class Item:
    """What the plugin asks of a test."""

    nodeid: str
    get_closest_marker: Callable[[str], pytest.Mark | None]


def an_item(test: str, *marks: pytest.MarkDecorator) -> Item:
    def closest(name: str) -> pytest.Mark | None:
        return next((each.mark for each in marks if each.name == name), None)

    return Item(f"{FILE}::{test}", closest)


@pytest.mark.parametrize(
    "marks",
    [(), *((pytest.mark.in_turn(turn, of=of),) for of in (2, 4, 12) for turn in range(of))],
    ids=lambda marks: marks[0].args and f"{marks[0].args[0]} of {marks[0].kwargs['of']}" if marks else "no turn",
)
def test_a_dozen_runs_take_every_slow_test_once(
    marks: tuple[pytest.MarkDecorator, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(rotation.FULL, raising=False)
    items = [an_item(f"test_{n}", pytest.mark.processes, *marks) for n in range(19)]
    taken = []
    for number in range(1000, 1000 + rotation.PARTS):
        monkeypatch.setenv(rotation.SLICE, str(number))
        left_out = rotation._of_other_slices(items)  # type: ignore[arg-type]
        taken += [item.nodeid for item in items if item not in left_out]
    assert sorted(taken) == sorted(item.nodeid for item in items)


def test_a_file_with_a_turn_is_whole_in_its_run_and_absent_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rotation.FULL, raising=False)
    items = [an_item(f"test_{n}", pytest.mark.trainer, pytest.mark.in_turn(3, of=12)) for n in range(5)]
    shares = []
    for number in range(rotation.PARTS):
        monkeypatch.setenv(rotation.SLICE, str(number))
        shares.append(len(items) - len(rotation._of_other_slices(items)))  # type: ignore[arg-type]
    assert sorted(shares) == [*[0] * 11, 5]
