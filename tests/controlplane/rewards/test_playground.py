from __future__ import annotations

import math

import pytest

from controlplane.rewards import playground
from workers.contract import RewardSpec

THINKS = RewardSpec(name="thinks", function="think_tags")
RIGHT = RewardSpec(name="right", function="numeric_match", weight=2.0)
ROW = {"row": 0, "prompt": "2+2?", "answer": "4"}


def test_the_suggested_completions_are_told_apart():
    trial = playground.try_on([THINKS, RIGHT], ROW, playground.suggested(ROW))
    assert [one.total for one in trial.group] == [3.0, 2.0, 1.0, 0.0]
    assert trial.columns[1].scores == [1.0, 1.0, 0.0, 0.0]


def test_advantages_are_distances_from_the_mean_in_deviations():
    trial = playground.try_on([RIGHT], ROW, ["4", "5"])
    assert trial.mean == 1.0
    assert math.isclose(trial.deviation, math.sqrt(2))
    assert [round(one.advantage, 3) for one in trial.group] == [0.707, -0.707]
    assert [one.bar for one in trial.group] == [50.0, 50.0]


def test_a_group_without_spread_has_no_advantage():
    trial = playground.try_on([RIGHT], ROW, ["4", "4"])
    assert [one.advantage for one in trial.group] == [0.0, 0.0]


def test_a_reward_that_does_not_apply_counts_nothing():
    trial = playground.try_on([THINKS, RIGHT], {"prompt": "x", "answer": None}, ["<think>a</think>b"])
    assert trial.group[0].scores == [1.0, None]
    assert trial.group[0].total == 1.0


def test_blank_completions_are_passed_over_and_long_ones_cut():
    trial = playground.try_on([THINKS], ROW, ["", "  ", "x" * 30_000, *"abcdefghijklmnopqrstuvwxyz"])
    assert len(trial.group) == playground.MOST_COMPLETIONS
    assert len(trial.group[0].text) == playground.LONGEST_COMPLETION


@pytest.mark.parametrize("answer", ["72", "1,234", "Paris", "", None])
def test_there_is_always_a_wrong_answer_to_compare_with(answer):
    right, _, wrong, _ = playground.suggested({"answer": answer})
    assert right != wrong
