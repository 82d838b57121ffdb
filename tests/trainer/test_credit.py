"""Credit per turn: advantages of tokens are those of a reference written out in loops."""

from __future__ import annotations

import math
import random
from statistics import fmean, stdev
from typing import Any

import pytest

from workers.trainer.episodes import credit


def written_out(
    rewards: list[list[float | None]],
    outcomes: list[float],
    spans: Any,
    group: int,
    scale: str,
    coef: float,
    width: int,
) -> list[list[float]]:
    """The formula, token by token."""
    tokens = [[outcome] * width for outcome in outcomes]
    for i, of_turns in enumerate(rewards):
        members = rewards[i // group * group :][:group]
        for k, reward in enumerate(of_turns):
            scored = [one[k] for one in members if k < len(one) and one[k] is not None]
            batch = [one[k] for one in rewards if k < len(one) and one[k] is not None]
            if reward is None or len(scored) < 2:
                continue
            divisor = {"group": scored, "batch": batch}.get(scale)
            by = 1.0 if divisor is None else stdev(divisor) + 1e-4
            for t in range(*spans[i][k]):
                tokens[i][t] += coef * (reward - fmean(scored)) / by
    return tokens


def batch(dice: random.Random, group: int) -> dict[str, Any]:
    """Episodes of 1 to 4 turns, with gaps among the scores and tokens of tools between the turns."""
    rewards: list[list[float | None]] = []
    spans = []
    for _ in range(3 * group):
        turns = dice.randint(1, 4)
        rewards.append([dice.choice([None, 0.0, 1.0, dice.random()]) for _ in range(turns)])
        bounds = sorted(dice.sample(range(40), 2 * turns))
        spans.append(list(zip(bounds[::2], bounds[1::2], strict=True)))
    return {"rewards": rewards, "spans": spans, "outcomes": [dice.gauss(0, 1) for _ in rewards]}


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
@pytest.mark.parametrize("group", [2, 4, 8])
def test_tokens_get_the_outcomes_advantage_and_their_turns(group: int, scale: str) -> None:
    dice = random.Random(f"{group} {scale}")
    for _ in range(40):
        made, coef = batch(dice, group), dice.choice([0.0, 0.5, 1.0])
        turns = credit.turn_advantages([made["rewards"]], [1.0], group, scale=scale)
        tokens = credit.per_token(made["outcomes"], turns, made["spans"], coef, 40)
        expected = written_out(made["rewards"], made["outcomes"], made["spans"], group, scale, coef, 40)
        assert [x for row in tokens for x in row] == pytest.approx([x for row in expected for x in row], abs=1e-6)


def test_a_turn_that_nobody_else_has_and_one_without_a_score_add_nothing() -> None:
    scores = [[1.0, 1.0], [0.0], [None, math.nan], [1.0]]
    made = credit.turn_advantages([scores], [1.0], 4)
    assert (made[0][1], made[2]) == (0.0, [0.0, 0.0])
    assert made[0][0] == made[3][0] == pytest.approx((1 - 2 / 3) / (stdev([1.0, 0.0, 1.0]) + 1e-4))


def test_components_of_a_turn_are_weighted_or_each_normalised_before() -> None:
    values = [[[1.0], [0.0]], [[10.0], [30.0]]]
    assert credit.turn_rewards(values, [1.0, 0.5]) == [[6.0], [15.0]]
    summed = credit.turn_advantages(values, [1.0, 0.5], 2)
    each = credit.turn_advantages(values, [1.0, 0.5], 2, "normalize_then_sum")
    assert (summed[0][0] < 0, each[0][0] > 0) == (True, True)


def test_turns_lie_where_their_messages_say_and_a_text_is_one_turn() -> None:
    said = [
        {"role": "assistant", "tokens": 5},
        {"role": "tool", "tokens": 3},
        {"role": "tool", "tokens": 2},
        {"role": "assistant", "tokens": 4},
        {"role": "tool", "tokens": 0},
    ]
    assert credit.spans(said, 14) == [(0, 5), (10, 14)]
    assert credit.spans("a text", 7) == credit.spans([{"role": "assistant", "content": "a text"}], 7) == [(0, 7)]
