from __future__ import annotations

from dataclasses import replace

import pytest

from controlplane.catalogue.rewards.balance import balance, describe_range
from controlplane.catalogue.rewards.models import NORMALIZE_THEN_SUM, SUM_THEN_NORMALIZE
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY

TAGS = RewardSpec("tags", "think_tags", 1.0)
RIGHT = RewardSpec("right", "numeric_match", 2.0)
VARIETY = RewardSpec("variety", "unique_chars", 1.0)


def test_ranges_go_by_weights_and_add_up() -> None:
    found = balance([TAGS, RIGHT, RewardSpec("short", "overlong", 0.5)], SUM_THEN_NORMALIZE)
    assert [(span.low, span.high) for span in found.spans] == [(0.0, 1.0), (0.0, 2.0), (-0.5, 0.0)]
    assert (found.low, found.high, found.drowns) == (-0.5, 3.0, None)


def test_one_that_is_wrong_as_it_stands_leaves_the_others_their_colours() -> None:
    assert [span.index for span in balance([None, TAGS, RewardSpec("x", "gone"), RIGHT], "").spans] == [1, 3]


def test_a_negative_weight_turns_a_range_round() -> None:
    [span, unbounded] = balance([RewardSpec("t", "think_tags", -2.0), RewardSpec("u", "unique_chars", -1.0)], "").spans
    assert (span.low, span.high) == (-2.0, 0.0)
    assert (unbounded.low, unbounded.high, unbounded.range) == (None, 0.0, "up to 0")


def test_a_range_that_its_parameters_change_is_theirs() -> None:
    mild = RewardSpec("short", "overlong", 1.0, {"punishment": -0.25})
    assert balance([mild], SUM_THEN_NORMALIZE).low == -0.25


def test_a_count_of_characters_beside_a_tag_drowns_it() -> None:
    found = balance([TAGS, VARIETY], SUM_THEN_NORMALIZE).drowns
    assert found is not None
    low, high = LIBRARY["unique_chars"].typical or (0, 0)
    assert (found.span.spec, found.times, found.largest.spec, found.size) == (VARIETY, high - low, TAGS, 1.0)
    assert found.instead == "unique_chars_normalised"


def weighed(function: str, weight: float, **params: object) -> RewardSpec:
    return RewardSpec(f"{function}_{weight:g}", function, weight, params)


FIVE_TAGS = [RewardSpec(f"tag{number}", "answer_tag", 1.0) for number in range(5)]
DROWNED = [
    [TAGS, VARIETY],
    [weighed("think_tags", 0.9), weighed("unique_chars", 0.1)],
    [*FIVE_TAGS, weighed("unique_chars", 0.5)],
    [weighed("think_tags", 0.1), weighed("numeric_match", 1.0), weighed("unique_chars", 0.1)],
    [weighed("tests_passed", 1.0), weighed("python_style", 1.0, scale="minus the count")],
    [weighed("numeric_match", 0.2), weighed("reward_model", 0.2)],
]


def test_both_fixes_mend_it(subtests: pytest.Subtests) -> None:
    for specs in DROWNED:
        with subtests.test(specs=specs):
            found = balance(specs, SUM_THEN_NORMALIZE).drowns
            assert found is not None
            assert found.span.spec == specs[-1]
            others, drowning = specs[:-1], specs[-1]
            assert balance([*others, replace(drowning, weight=found.weight)], SUM_THEN_NORMALIZE).drowns is None
            if found.instead:
                mild = replace(drowning, function=found.instead)
                assert balance([*others, mild], SUM_THEN_NORMALIZE).drowns is None


@pytest.mark.parametrize("aggregation", [SUM_THEN_NORMALIZE, NORMALIZE_THEN_SUM])
@pytest.mark.parametrize(
    "specs",
    [
        [weighed("numeric_match", 1.0), weighed("answer_tag", 0.2)],
        [weighed("numeric_match", 1.0), weighed("answer_tag", 0.1)],
        [weighed("numeric_match", 1.0), weighed("answer_tag", 0.05), weighed("think_tags", 0.05)],
        [weighed("numeric_match", 2.0), weighed("soft_format", 0.25), weighed("overlong", 0.5)],
        [weighed("numeric_match", 1.0), weighed("overlong", 1.0, punishment=-0.1)],
        [weighed("trl_cosine_scaled", 1.0), weighed("think_tags", 0.2)],
        [weighed("tests_passed", 1.0), weighed("python_executes", 0.2, wrong_score=-1.0)],
        [weighed("numeric_match", 1.0), weighed("reward_model", 0.1)],
        [weighed("think_tags", 0.9), weighed("unique_chars_normalised", 0.1)],
    ],
)
def test_what_people_weigh_lightly_is_not_drowned(specs: list[RewardSpec], aggregation: str) -> None:
    assert balance(specs, aggregation).drowns is None


def test_a_weight_that_leaves_the_other_next_to_nothing_drowns_it() -> None:
    found = balance([weighed("numeric_match", 1.0), weighed("think_tags", 0.01)], SUM_THEN_NORMALIZE).drowns
    assert found is not None
    assert (found.times, found.weight) == (100.0, 0.01)


def test_where_each_is_normalised_by_itself_only_weights_count() -> None:
    assert balance([TAGS, VARIETY], NORMALIZE_THEN_SUM).drowns is None
    heavy = balance([TAGS, RewardSpec("right", "numeric_match", 40.0)], NORMALIZE_THEN_SUM).drowns
    assert heavy is not None
    assert (heavy.times, heavy.weight, heavy.instead) == (40.0, 1.0, "")


@pytest.mark.parametrize("specs", [[], [VARIETY], [VARIETY, RewardSpec("watched", "think_tags", 0.0)]])
def test_what_stands_alone_drowns_nobody(specs: list[RewardSpec]) -> None:
    assert balance(specs, SUM_THEN_NORMALIZE).drowns is None


def test_bars_stand_on_one_axis_with_its_zero() -> None:
    found = balance([RewardSpec("short", "overlong", 1.0), RewardSpec("right", "numeric_match", 3.0)], "")
    assert (found.zero, [span.bar for span in found.spans]) == (25.0, [(0.0, 25.0), (25.0, 75.0)])


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 1, "0 to 1"),
        (0, None, "0 and up"),
        (None, 2, "up to 2"),
        (None, None, "no bounds"),
        (-1, 0.5, "−1 to 0.500"),
    ],
)
def test_a_range_is_told_in_words(low: float | None, high: float | None, words: str) -> None:
    assert describe_range(low, high) == words
