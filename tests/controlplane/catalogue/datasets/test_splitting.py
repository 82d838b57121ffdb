"""What is kept out of training: an exact share, of each difficulty alike, no prompt in both parts, always the same."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.versions.spill_by_split import SplitSpill
from controlplane.catalogue.datasets.reader.versions.splitting import (
    MAX_STRATA,
    OTHER_STRATUM,
    Split,
    Strata,
    ValidationDraw,
    quotas,
)
from controlplane.catalogue.datasets.reader.versions.writing import write_version


def row(number: int, text: str = "", answer: str = "1", **metadata: Any) -> dict[str, Any]:
    prompt = [{"role": "system", "content": "s"}, {"role": "user", "content": text or f"What is {number}?"}]
    return {"row_id": number, "prompt": prompt, "answer": answer, "test_cases": [], "metadata": metadata}


def parted(folder: Path, rows: list[dict[str, Any]], split: Split | None = None, **asked: Any) -> list[dict[str, Any]]:
    with SplitSpill(folder) as parting:
        for one in rows:
            parting.add(one)
        return list(parting.rows(split or Split(), **asked))


def kept(rows: list[dict[str, Any]]) -> list[int]:
    return [one["row_id"] for one in rows if one["split"] == "validation"]


@pytest.mark.parametrize("count", [2, 9, 10, 15, 101, 7473])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.15, 0.5, 0.99])
def test_the_share_is_exact_and_neither_part_is_empty(count: int, share: float) -> None:
    made = quotas({"": count}, Split(share))[""]
    assert made == min(max(round(count * share), 1), count - 1)


def test_each_stratum_gives_its_share_to_one_row_and_all_together_to_the_row() -> None:
    counts = {"easy": 5000, "medium": 333, "hard": 77, "odd": 1, "": 4}
    made = quotas(counts, Split(0.1))
    assert sum(made.values()) == round(sum(counts.values()) * 0.1)
    assert all(abs(made[name] - counts[name] * 0.1) < 1.001 for name in counts)


def test_many_strata_of_one_row_are_kept_out_by_the_seed() -> None:
    counts = {str(number): 1 for number in range(1000)}
    first, second = quotas(counts, Split(0.1, 1)), quotas(counts, Split(0.1, 2))
    assert sum(first.values()) == sum(second.values()) == 100
    assert first != second
    assert first == quotas(counts, Split(0.1, 1))


def test_without_a_share_or_with_one_prompt_nothing_is_kept_out() -> None:
    assert quotas({"": 100}, Split(0.0)) == {"": 0}
    assert quotas({"": 1}, Split(0.5)) == {"": 0}
    assert quotas({}, Split(0.5)) == {}


def test_every_place_is_as_likely_as_any_other() -> None:
    hits: Counter[int] = Counter()
    for seed in range(2000):
        drawing = ValidationDraw({"": 10}, Split(0.2, seed))
        hits.update(place for place in range(10) if drawing.is_validation(""))
    assert hits.total() == 4000
    assert all(320 < hits[place] < 480 for place in range(10))


def test_more_prompts_than_were_counted_are_an_error() -> None:
    drawing = ValidationDraw({"": 1}, Split())
    drawing.is_validation("")
    with pytest.raises(ValueError, match="More prompts"):
        drawing.is_validation("")


def test_the_number_of_strata_is_bounded() -> None:
    strata = Strata()
    names = {strata.name({"difficulty": number}) for number in range(MAX_STRATA + 50)}
    assert len(names) == MAX_STRATA + 1
    assert OTHER_STRATUM in names
    assert strata.name({"difficulty": 0}) == "0"
    assert strata.name({"difficulty": ["x"]}) == OTHER_STRATUM


@pytest.mark.parametrize("wrong", [{"share": 1}, {"share": -0.1}, {"share": "a"}, {"share": True}, {"seed": 1.5}])
def test_a_split_that_is_none_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"share must be at least 0|seed must be a whole number"):
        Split.from_dict(wrong)


def test_rows_come_back_in_order_whole_and_with_their_part(tmp_path: Path) -> None:
    rows = [row(number, difficulty="hard" if number % 4 else "easy", more=[number]) for number in range(200)]
    made = parted(tmp_path, rows)
    assert [{name: value for name, value in one.items() if name != "split"} for one in made] == rows
    by = Counter(one["metadata"]["difficulty"] for one in made if one["split"] == "validation")
    assert by == {"hard": 15, "easy": 5}
    assert list(tmp_path.iterdir()) == []


def test_the_same_rows_part_in_the_same_way_and_another_seed_in_another(tmp_path: Path) -> None:
    rows = [row(number) for number in range(300)]
    assert kept(parted(tmp_path, rows)) == kept(parted(tmp_path, rows)) != kept(parted(tmp_path, rows, Split(0.1, 7)))


def test_no_prompt_is_in_both_parts_however_it_is_written(tmp_path: Path) -> None:
    ways = ("what is {}?", "What  is {}?\n", "WHAT IS {}?", "what is {}?")
    rows = [row(place, ways[place % 4].format(place * 7 % 100), difficulty=place % 3) for place in range(400)]
    made = parted(tmp_path, rows, Split(0.3))
    parts: dict[str, set[str]] = {}
    for one in made:
        parts.setdefault(" ".join(one["prompt"][1]["content"].lower().split()), set()).add(one["split"])
    assert len(parts) == 100
    assert all(len(part) == 1 for part in parts.values())
    assert sum(part == {"validation"} for part in parts.values()) == 30


def test_of_rows_with_the_same_prompt_only_the_first_is_left_if_so_asked(tmp_path: Path) -> None:
    rows = [row(0, "a"), row(1, "b"), row(2, "A"), row(3, "a", answer="2"), row(4, "c")]
    assert [one["row_id"] for one in parted(tmp_path, rows, drop_duplicates=True)] == [0, 1, 4]


def test_repetitions_are_counted_apart_from_those_with_the_same_answer(tmp_path: Path) -> None:
    rows = [one | {"split": "train"} for one in (row(0, "a"), row(1, "a"), row(2, "a", answer="2"), row(3, "b"))]
    with Collector(tmp_path / "problems") as collector:
        made = write_version(tmp_path, rows, collector, chat=True, tokenizer=None, token_limit=None)
    assert (made["statistics"]["repeated"], made["statistics"]["ambiguous"]) == (2, 1)


@pytest.mark.parametrize("drop_duplicates", [False, True])
def test_turns_of_one_conversation_stay_in_one_part_even_when_questions_repeat(
    tmp_path: Path, drop_duplicates: bool
) -> None:
    with SplitSpill(tmp_path) as parting:
        for number in range(60):
            question = f"What is {number % 45}?"
            parting.add(row(2 * number, question))
            parting.add(row(2 * number + 1, f"{question} It is. And {number}?"), with_previous=True)
        made = list(parting.rows(Split(0.3), drop_duplicates=drop_duplicates))
    parts: dict[str, set[str]] = {}
    for one in made:
        parts.setdefault(one["prompt"][1]["content"].partition("?")[0], set()).add(one["split"])
    assert len(made) == (105 if drop_duplicates else 120)
    assert sum(part == {"validation"} for part in parts.values()) == round(45 * 0.3)
    assert all(len(part) == 1 for part in parts.values())
