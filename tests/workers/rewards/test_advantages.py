"""Totals and advantages: small groups by hand."""

from __future__ import annotations

import pytest

from workers.rewards.advantages import AGGREGATIONS, SCALES, advantages, totals


def test_a_total_is_the_weighted_sum_of_what_applies() -> None:
    assert totals([[1.0, 0.0, None, None], [10.0, None, 4.0, None]], [2.0, 0.5]) == [7.0, 0.0, 2.0, None]


def test_an_advantage_is_the_distance_from_the_group_in_spreads() -> None:
    given = advantages([[1.0, 0.0, 0.0, 1.0, 5.0, 5.0]], [1.0], 2)
    assert given.means == [0.5, 0.5, 5.0]
    assert given.stds == pytest.approx([0.5**0.5, 0.5**0.5, 0.0])
    half = 0.5 / (0.5**0.5 + 1e-4)
    assert given.advantages == pytest.approx([half, -half, -half, half, 0.0, 0.0])
    assert given.zero_spread == [False, False, True]


def test_without_scaling_it_is_the_distance_itself() -> None:
    assert advantages([[1.0, 0.0, 4.0, 2.0]], [2.0], 2, scale="none").advantages == [1.0, -1.0, 2.0, -2.0]
    assert advantages([[1.0, 0.0]], [1.0], 2, scale=False).advantages == [0.5, -0.5]


def test_a_group_of_which_one_applies_has_no_advantage() -> None:
    given = advantages([[3.0, None, 1.0, 0.0]], [1.0], 2)
    assert given.totals == [3.0, None, 1.0, 0.0]
    assert (given.means[0], given.stds[0], given.zero_spread[0]) == (3.0, None, True)
    assert given.advantages[:2] == [0.0, 0.0]


def test_normalising_first_gives_a_component_of_hundreds_no_more_say_than_a_tag() -> None:
    values = [[1.0, 0.0, 1.0, 0.0], [300.0, 900.0, 300.0, 900.0]]
    drowned = advantages(values, [2.0, 1.0], 4).advantages
    heard = advantages(values, [2.0, 1.0], 4, "normalize_then_sum").advantages
    assert drowned == pytest.approx([-0.866, 0.866, -0.866, 0.866], abs=1e-3)
    assert heard == pytest.approx([0.866, -0.866, 0.866, -0.866], abs=1e-3)


def test_nothing_applying_at_all_moves_nothing() -> None:
    for aggregation in AGGREGATIONS:
        for scale in SCALES:
            given = advantages([[None, None]], [1.0], 2, aggregation, scale)
            assert (given.totals, given.advantages) == ([None, None], [0.0, 0.0])


@pytest.mark.parametrize(
    "arguments",
    [
        ([[1.0, 2.0, 3.0]], [1.0], 2),
        ([[1.0, 2.0]], [1.0, 1.0], 2),
        ([], [], 2),
        ([[1.0, 2.0], [1.0]], [1.0, 1.0], 2),
        ([[1.0, 2.0]], [1.0], 0),
        ([[1.0, 2.0]], [1.0], 2, "sum"),
        ([[1.0, 2.0]], [1.0], 2, "sum_then_normalize", "std"),
    ],
)
def test_what_trl_would_not_compute_is_refused(arguments: tuple) -> None:
    with pytest.raises(ValueError):
        advantages(*arguments)
