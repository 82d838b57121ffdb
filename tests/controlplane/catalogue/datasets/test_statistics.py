"""The figures of a dataset, and what is said about them."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.datasets.pages import showing
from controlplane.catalogue.datasets.reader.versions.hints import hints
from controlplane.catalogue.datasets.reader.versions.statistics import (
    MAX_COUNTED_NAMES,
    Lengths,
    NameCounts,
    Statistics,
)
from workers.rewards.library import LIBRARY


def told(*rows: dict[str, Any], **repeats: int) -> dict[str, Any]:
    statistics = Statistics()
    for row in rows:
        statistics.add(row)
    return statistics.as_dict(**repeats)


def a_row(content: str = "What is seven times six?", **changes: Any) -> dict[str, Any]:
    prompt = [{"role": "system", "content": "Think."}, {"role": "user", "content": content}]
    return {"prompt": prompt, "answer": "42", "test_cases": [], "metadata": {}, "split": "train", **changes}


def test_of_two_lengths_the_longer_one_is_what_95_percent_stay_within() -> None:
    lengths = Lengths()
    lengths.add(54)
    lengths.add(88)
    found = lengths.as_dict()
    assert found
    assert (found["median"], found["p95"], found["longest"]) == (54, 88, 88)


def test_lengths_are_exact_below_a_thousand_and_bounded_above() -> None:
    lengths = Lengths()
    for length in range(1, 101):
        lengths.add(length)
    found = lengths.as_dict()
    assert found
    assert (found["median"], found["p95"], found["longest"], found["mean"]) == (50, 95, 100, 50.5)
    assert sum(found["bins"]) == found["count"] == 100
    for length in range(1_000_000, 1_900_000, 7):
        lengths.add(length)
    assert len(lengths._counts) <= 100 + 90
    found = lengths.as_dict()
    assert found
    assert found["longest"] == 1_899_997
    assert abs(found["median"] - 1_450_000) <= 20_000


def test_no_lengths_are_no_figures() -> None:
    assert Lengths().as_dict() is None


def test_names_beyond_a_bound_are_one_number() -> None:
    names = NameCounts()
    for number in range(MAX_COUNTED_NAMES + 50):
        names.add(f"tag {number}")
    names.add("tag 0")
    found = names.as_dict()
    assert found["counts"][0] == {"name": "tag 0", "count": 2}
    assert sum(one["count"] for one in found["counts"]) + found["others"] == MAX_COUNTED_NAMES + 51


def test_the_system_prompt_is_not_counted_and_tokens_only_where_they_are_known() -> None:
    statistics = Statistics()
    statistics.add(a_row("four"), prompt_tokens=3)
    statistics.add(a_row("fifth", answer=None))
    found = statistics.as_dict()
    assert found["lengths"]["prompt_chars"]["sum"] == 9
    assert found["lengths"]["prompt_tokens"]["count"] == 1
    assert "answer_tokens" not in found["lengths"]
    assert (found["with_answer"], found["short_prompts"]) == (1, 2)


def test_difficulty_tags_tests_code_and_the_split_are_counted() -> None:
    found = told(
        a_row(metadata={"difficulty": "easy", "tags": ["sort", "lists"]}, split="validation"),
        a_row(metadata={"difficulty": 3, "tags": "sort"}, answer="def f():\n    return 1"),
        a_row(test_cases=["assert f() == 1"], answer=None),
    )
    assert found["difficulty"]["counts"] == [{"name": "easy", "count": 1}, {"name": "3", "count": 1}]
    assert found["tags"]["counts"] == [{"name": "sort", "count": 2}, {"name": "lists", "count": 1}]
    assert {"names": ["sort"], "rows": 1} in found["name_sets"]  # of training rows
    assert not any("lists" in counted["names"] for counted in found["name_sets"])
    assert (found["code"], found["with_tests"], found["validation"]) == (2, 1, 1)


@pytest.mark.parametrize(
    ("found", "title"),
    [
        (told(a_row()), "Few rows"),
        (told(a_row("Add"), a_row()), "Very short prompts"),
        (told(*[a_row()] * 4, repeated=3, repeated_with_answer=1), "Ambiguous prompts"),
        (told(*[a_row()] * 4, repeated=3, repeated_with_answer=3), "Repeated prompts"),
        (told(a_row(answer=None)), "No answers"),
        (told(a_row(answer=None), a_row()), "Rows without an answer"),
        (told(a_row(answer="def f(): pass")), "Code without tests"),
        (told(a_row()), "No difficulty"),
        (told(*[a_row(metadata={"difficulty": "easy"})] * 2), "One difficulty"),
        (told(a_row("a b c " * 400), a_row(), a_row()), "A few very long prompts"),
    ],
)
def test_what_a_practitioner_would_say_is_said(found: dict[str, Any], title: str) -> None:
    assert title in [hint["title"] for hint in hints(found)]


def test_code_with_answers_and_no_tests_is_told_which_reward_compares_it() -> None:
    (hint,) = [one for one in hints(told(a_row(answer="def f(): pass"))) if one["title"] == "Code without tests"]
    assert LIBRARY["same_output"].title in hint["text"]


def test_a_good_set_gets_no_warning_and_what_needs_attention_comes_first() -> None:
    rows = [a_row(metadata={"difficulty": level}) for level in ("easy", "medium", "hard")] * 50
    assert hints(told(*rows)) == []
    found = hints(told(a_row("Add"), a_row("Sum", answer=None)))
    levels = [hint["level"] for hint in found]
    assert levels == sorted(levels, reverse=True)
    assert levels[0] == "watch"
    assert hints(told()) == []


def test_prompts_over_the_limit_are_told_with_their_figures() -> None:
    statistics = Statistics()
    for tokens in (10, 20, 3_000):
        statistics.add(a_row(), prompt_tokens=tokens)
    (hint,) = [one for one in hints(statistics.as_dict(), token_limit=512) if "limit" in one["title"]]
    assert "3,000 tokens" in hint["text"]
    assert "512" in hint["text"]
    assert "don't truncate prompts" in hint["text"]


def test_the_guide_places_every_size(subtests: pytest.Subtests) -> None:
    for rows, words in [
        (10, "Fewer"),
        (1_000, "16 GB"),
        (5_000, "Between"),
        (7_473, "Between"),
        (50_000, "40 GB"),
        (10**6, "48 GB"),
    ]:
        with subtests.test(rows=rows):
            assert words in showing.size_sentence(rows)
