"""How many prompts of a batch each source of a mix gives."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from workers.contract.run import mixing
from workers.contract.run.mixing import SourceSpec, counts_by_batch, most_in_batch, place_of

STEPS = 200


def source(name: str = "sums", weight: float = 1.0, **settings: int) -> SourceSpec:
    return SourceSpec(name, 1, "0" * 64, 10, weight=weight, **settings)


def random_mixes() -> list[tuple[list[float], int]]:
    made = random.Random(3)
    return [
        ([made.choice([0.1, 0.3, 1, 2.5, 7, made.random() + 1e-3]) for _ in range(made.randint(2, 9))], size)
        for size in (1, 3, 8, 17, 64)
    ]


@pytest.mark.parametrize(("weights", "size"), random_mixes())
def test_each_batch_and_the_whole_run_have_the_shares_of_the_weights(weights: list[float], size: int) -> None:
    wanted = [size * weight / sum(weights) for weight in weights]
    totals = [0] * len(weights)
    for step, counts in enumerate(islice(counts_by_batch(weights, size), STEPS), 1):
        assert sum(counts) == size
        assert all(abs(count - share) < 1 for count, share in zip(counts, wanted, strict=True))
        totals = [total + count for total, count in zip(totals, counts, strict=True)]
        assert all(abs(total - step * share) < 2 for total, share in zip(totals, wanted, strict=True))
    assert all(
        abs(total / sum(totals) - weight / sum(weights)) < 0.01 for total, weight in zip(totals, weights, strict=True)
    )


def test_shares_that_come_out_even_are_the_same_in_each_batch() -> None:
    assert list(islice(counts_by_batch([0.7, 0.2, 0.1], 10), 3)) == [[7, 2, 1]] * 3
    assert most_in_batch([0.7, 0.2, 0.1], 10) == [7, 2, 1]
    assert most_in_batch([2, 1], 4) == [3, 2]


def test_rows_of_the_first_source_keep_their_numbers() -> None:
    assert (place_of(17), place_of(2 * mixing.ROWS_OF_SOURCE + 5)) == ((0, 17), (2, 5))


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), 2e6])
def test_a_weight_that_is_no_share_is_refused(weight: float) -> None:
    (problem,) = mixing.problems([source(), source("words", weight)])
    assert problem.startswith("The weight of words is")


def test_two_sources_of_a_name_too_many_and_too_few_rows_are_refused() -> None:
    assert list(mixing.problems([source(), source()])) == [
        "Two datasets of the mix are named sums, so their figures could not be told apart. Remove one of them."
    ]
    assert len(list(mixing.problems([source(str(number)) for number in range(17)]))) == 1
    assert len(list(mixing.problems([source(max_rows=-1)]))) == 1
