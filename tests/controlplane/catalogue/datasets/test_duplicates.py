"""Repeated keys are found whatever their number, in bounded memory, and nothing is left on the disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader.checking import duplicates, spilling
from controlplane.catalogue.datasets.reader.checking.duplicates import Duplicates


def expected(keys: list[str]) -> list[tuple[int, int]]:
    firsts: dict[str, int] = {}
    return [(line, first) for line, key in enumerate(keys) if (first := firsts.setdefault(key, line)) != line]


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything goes through the disk."""
    monkeypatch.setattr(duplicates, "BLOCK", 64)
    monkeypatch.setattr(spilling, "BLOCK", 128)
    monkeypatch.setattr(duplicates, "MAX_PAIRS_IN_MEMORY", 100)


def found(folder: Path, keys: list[str]) -> list[tuple[int, int]]:
    with Duplicates(folder) as rows:
        for line, key in enumerate(keys):
            rows.add(key, line)
        return list(rows.repeats())


@pytest.mark.parametrize("keys", [[], ["a"], ["a", "b"], ["a", "a", "b", "a"], ["", ""], ["ä", "a", "ä"]])
def test_a_few_rows(keys: list[str], tmp_path: Path) -> None:
    assert found(tmp_path, keys) == expected(keys)


@pytest.mark.parametrize("different", [1, 3, 700, 1_000_000])
@pytest.mark.usefixtures("_small_blocks")
def test_more_rows_than_a_part_holds(different: int, tmp_path: Path) -> None:
    chance = random.Random(different)
    keys = [str(chance.randrange(different)) for _ in range(5_000)]
    assert found(tmp_path, keys) == expected(keys)


@pytest.mark.usefixtures("_small_blocks")
def test_lines_need_not_ascend_nor_follow_on_each_other(tmp_path: Path) -> None:
    with Duplicates(tmp_path) as rows:
        for key, line in zip([b"x", b"y"] * 50, range(2**40, 0, -(2**33)), strict=False):
            rows.add(key, line)
        answers = list(rows.repeats())
    assert len(answers) == 98
    assert answers == sorted(answers)
    assert {first for _, first in answers} == {2**40 - 99 * 2**33, 2**40 - 98 * 2**33}


@pytest.mark.usefixtures("_small_blocks")
def test_nothing_lies_in_the_folder_while_and_after_it_works(tmp_path: Path) -> None:
    rows = Duplicates(tmp_path)
    for line in range(1_000):
        rows.add(str(line), line)
    assert list(tmp_path.iterdir()) == []
    rows.close()
    assert list(tmp_path.iterdir()) == []
