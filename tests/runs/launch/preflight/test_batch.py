"""The batch arithmetic as a table; test_trl.py holds the same table against the real TRL."""

from __future__ import annotations

import pytest

from workers.contract.run.batch_rules import Batch, BatchRule, epochs, nearest, problems, repairs, steps

B, W, GA, G = "per_device_train_batch_size", "processes", "gradient_accumulation_steps", "num_generations"
S, X, EB, EG = "steps_per_generation", "generation_batch_size", "per_device_eval_batch_size", "num_generations_eval"

TABLE: list[tuple[dict[str, int], set[BatchRule]]] = [
    ({}, set()),
    ({B: 4, GA: 2, G: 8}, set()),
    ({B: 4, GA: 1, G: 8}, {BatchRule.GROUPS}),
    ({B: 4, W: 2, GA: 1, G: 8}, set()),
    ({B: 3, W: 3, G: 8}, {BatchRule.GROUPS}),
    ({B: 8, G: 6}, {BatchRule.GROUPS}),
    ({B: 6, G: 6}, set()),
    ({B: 1, GA: 8, G: 8}, set()),
    ({B: 8, G: 1}, {BatchRule.TWO_OR_MORE}),
    ({B: 2, G: 2}, set()),
    ({B: 4, S: 4, G: 8}, set()),
    ({B: 4, S: 3, G: 8}, {BatchRule.GROUPS}),
    ({B: 4, S: 1, GA: 2, G: 8}, {BatchRule.GROUPS}),
    ({B: 4, X: 16, G: 8}, set()),
    ({B: 4, X: 18, G: 6}, {BatchRule.WHOLE_STEPS}),
    ({B: 4, X: 12, G: 8}, {BatchRule.GROUPS}),
    ({B: 4, W: 2, X: 12, G: 4}, {BatchRule.WHOLE_STEPS}),
    ({B: 4, X: 16, S: 4, G: 8}, {BatchRule.BOTH_GIVEN}),
    ({"evaluates": True}, set()),
    ({"evaluates": True, EB: 4}, {BatchRule.EVAL_GROUPS}),
    ({"evaluates": True, EB: 4, EG: 4}, set()),
    ({"evaluates": True, EB: 4, W: 2}, set()),
    ({"evaluates": True, EB: 6, G: 4, EG: 4}, {BatchRule.EVAL_GROUPS}),
    ({"evaluates": False, EB: 3}, set()),
    ({"evaluates": True, EB: 4, B: 4}, {BatchRule.EVAL_GROUPS, BatchRule.GROUPS}),
]


BROKEN = [(sizes, rules) for sizes, rules in TABLE if rules]


def test_a_batch_breaks_just_these_rules(subtests):
    for sizes, rules in TABLE:
        with subtests.test(sizes=sizes):
            assert {problem.rule for problem in problems(Batch(**sizes))} == rules


def test_every_repair_ends_that_rule_and_breaks_no_other(subtests):
    for sizes, rules in BROKEN:
        with subtests.test(sizes=sizes):
            batch = Batch(**sizes)
            for rule in rules - {BatchRule.BOTH_GIVEN}:
                offered = repairs(batch, rule)
                assert offered
                for name, value in offered:
                    assert {p.rule for p in problems(Batch(**{**sizes, name: value}))} <= rules - {rule}


def test_the_nearest_values_come_first():
    assert repairs(Batch(per_device_train_batch_size=8, num_generations=6), BatchRule.GROUPS)[:3] == [
        ("num_generations", 8),
        ("per_device_train_batch_size", 6),
        ("num_generations", 4),
    ]


def test_nothing_is_offered_where_nothing_helps():
    assert nearest(Batch(), ("num_generations",), lambda batch: False) == []


@pytest.mark.parametrize(
    ("batch", "rows", "expected"),
    [
        (Batch(), 100, 100),
        (Batch(per_device_train_batch_size=32), 100, 25),
        (Batch(per_device_train_batch_size=32), 103, 25),
        (Batch(per_device_train_batch_size=32), 3, 0),
        (Batch(per_device_train_batch_size=32, num_iterations=2), 100, 50),
        (Batch(gradient_accumulation_steps=4), 100, 25),
        (Batch(gradient_accumulation_steps=4, steps_per_generation=8), 100, 24),
    ],
)
def test_steps_of_an_epoch(batch, rows, expected):
    assert steps(batch, rows, epochs=1) == expected


def test_epochs_are_steps_the_other_way_round():
    batch = Batch(per_device_train_batch_size=32, num_iterations=2)
    assert epochs(batch, 100, steps=100) == 2
    assert epochs(batch, 3, steps=100) == 0
