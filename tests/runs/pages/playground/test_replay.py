"""What a replay says of groups: orders, pairs, spreads and advantages, by hand."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.rewards.turns import TrialTurn
from runs.insight.completions.groups import StoredCompletion
from runs.insight.scoring.evaluating import ScoreSource
from runs.insight.scoring.ordering import PairCounts, pairs, ranks
from runs.pages.playground.replay import RewardReplay, StoredGroup, compare, recorded_as, score
from workers.contract.run.spec import RewardSpec
from workers.rewards.library import LIBRARY
from workers.rewards.parameters import Params
from workers.rewards.reward import Cost, Reward

RIGHT = RewardSpec(name="right", function="numeric_match")
THINKS = RewardSpec(name="thinks", function="think_tags", weight=0.5)


def stored(*texts: str, before: Sequence[float | None] = (), step: int = 1, pk: int = 1) -> StoredGroup:
    """A group that answers 4, with what the run gave: totals, and an advantage of the same sign."""
    given = before or [0.0] * len(texts)
    told = [
        StoredCompletion(number, text, None, 3, "eos", {"right": total}, total, total)
        for number, (text, total) in enumerate(zip(texts, given, strict=True), 1)
    ]
    return StoredGroup(pk, step, {"row": pk, "prompt": "2+2?", "answer": "4"}, "2+2?", told)


def replayed(groups: Sequence[StoredGroup], *specs: RewardSpec, **how: Any) -> RewardReplay:
    scored = score(groups, specs or [RIGHT], TrialTurn(until=time.monotonic() + 60))
    return compare(scored, specs or [RIGHT], **{"aggregation": "sum_then_normalize", **how})


def lent(monkeypatch: pytest.MonkeyPatch, cost: Cost, **changes: Any) -> RewardSpec:
    reward = Reward(key="lent", title="Lent", help="", params=Params, range=(0.0, 1.0), cost=cost, **changes)
    monkeypatch.setitem(LIBRARY, "lent", reward)
    return RewardSpec(name="lent", function="lent")


@pytest.mark.parametrize(
    ("totals", "expected"),
    [
        ([1.0, 3.0, 2.0], [3, 1, 2]),
        ([1.0, 1.0, 0.0], [1, 1, 3]),
        ([1.0, 1.0 + 1e-9, 0.0], [1, 1, 3]),
        ([None, 1.0, None], [None, 1, None]),
        ([], []),
    ],
)
def test_the_best_has_rank_one_and_equals_share_theirs(totals: list[float | None], expected: list[int | None]):
    assert ranks(totals) == expected


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ([1.0, 0.0], [0.0, 1.0], PairCounts(1, 1, 0, 0)),
        ([1.0, 1.0], [0.0, 1.0], PairCounts(1, 0, 1, 0)),
        ([1.0, 0.0], [1.0, 1.0], PairCounts(1, 0, 0, 1)),
        ([1.0, 0.0], [9.0, 8.0], PairCounts(1, 0, 0, 0)),
        ([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], PairCounts(3, 3, 0, 0)),
        ([1.0, None], [0.0, 1.0], PairCounts(0, 0, 0, 0)),
        ([100000.0, 100000.001], [1.0, 1.0], PairCounts(1, 0, 0, 0)),  # single precision knows no better
    ],
)
def test_a_pair_is_turned_told_apart_made_equal_or_as_it_was(before: Any, now: Any, expected: PairCounts):
    assert pairs(before, now) == expected


def test_a_very_large_group_is_compared_and_shown_in_part():
    replay = replayed([stored(*["4", "5"] * 200, before=[0.0, 1.0] * 200)])
    [group] = replay.groups
    assert (group.pairs.all, len(group.shown), len(group.members)) == (128 * 127 / 2, 32, 400)
    assert {one.rank_now for one in group.members} == {1, 201}


def test_a_group_whose_best_is_now_the_worst():
    replay = replayed([stored("5", "4", before=[1.0, 0.0])])
    assert (replay.reordered, replay.pairs, replay.turned) == (1, PairCounts(1, 1, 0, 0), 1)
    [group] = replay.groups
    ranks = [(one.rank_before, one.rank_now, one.rank_change.text) for one in group.members]
    assert ranks == [(1, 2, "↓1"), (2, 1, "↑1")]
    assert [round(one.advantage_now, 3) for one in group.members] == [-0.707, 0.707]
    assert [member.number for _, member in replay.movers] == [1, 2]
    assert replay.change == pytest.approx((1.707 + 0.707) / 2, abs=1e-3)


def test_a_config_that_scores_as_the_run_did_changes_no_order():
    replay = replayed([stored("5", "4", before=[0.0, 1.0]), stored("5", "5", before=[0.0, 0.0], pk=2)])
    assert (replay.reordered, replay.turned, replay.flat_before, replay.flat_now) == (0, 0, 1, 1)


def test_what_single_precision_leaves_is_no_change():
    group = stored("4", "5", before=[1.0, 0.0])
    pushed = (0.70700675, -0.70700675)
    group = replace(
        group, completions=[replace(c, advantage=a) for c, a in zip(group.completions, pushed, strict=True)]
    )
    [member, _] = replayed([group]).groups[0].members
    assert member.advantage_now != member.advantage_before
    replay = replayed([group])
    assert (replay.change, replay.movers) == (0.0, [])


def test_spreads_that_come_and_go_are_counted():
    gains = stored("5", "4", before=[1.0, 1.0])
    loses = stored("4", "4", before=[1.0, 0.0], pk=2)
    replay = replayed([gains, loses])
    assert (replay.flat_before, replay.flat_now) == (1, 1)
    assert [(group.flat_before, group.flat_now) for group in replay.groups] == [(True, False), (False, True)]


@pytest.mark.parametrize("texts", [("4",), ("4", "4"), ("", "")])
def test_one_completion_equal_ones_and_empty_ones_have_no_advantage(texts: tuple[str, ...]):
    replay = replayed([stored(*texts)])
    assert [one.advantage_now for one in replay.groups[0].members] == [0.0] * len(texts)
    assert replay.movers == []
    assert replay.flat_now == 1


def test_a_batchs_spread_goes_over_the_groups_of_its_step_alone():
    near, far = stored("5", "4", before=[0.0, 1.0]), stored("4", "4", before=[0.0, 0.0], pk=2)
    later = stored("5", "4", before=[0.0, 1.0], pk=3, step=2)
    replay = replayed([near, far, later], scale="batch")
    by_step = [replay.groups[0].members[1].advantage_now, replay.groups[2].members[1].advantage_now]
    assert by_step == [pytest.approx(0.5 / 0.5001, abs=1e-4), pytest.approx(0.5 / 0.7072, abs=1e-4)]
    assert replayed([near], scale="none").groups[0].members[1].advantage_now == 0.5


def test_groups_of_two_sizes_in_one_step_keep_their_order():
    replay = replayed([stored("4", "5", "6"), stored("4", "5", pk=2), stored("1", "4", "6", pk=3)])
    assert [(group.stored.pk, len(group.members)) for group in replay.groups] == [(1, 3), (2, 2), (3, 3)]


def test_components_say_their_means_and_their_part_in_it():
    replay = replayed([stored("<think>a</think>4", "5", before=[1.0, 0.0])], RIGHT, THINKS)
    right, thinks = replay.parts
    assert (right.mean, right.before, thinks.mean, thinks.before) == (0.5, 0.5, 0.5, None)
    assert (right.share or 0) + (thinks.share or 0) == pytest.approx(1.0)
    assert (right.none, right.failed) == (0, 0)


def test_what_fails_is_counted_and_shown_once_for_each_message(monkeypatch: pytest.MonkeyPatch):
    def breaks(*_: Any) -> float:
        raise ValueError("no such thing")

    spec = lent(monkeypatch, Cost.PURE, function=breaks)
    replay = replayed([stored("4", "5"), stored("4", "5", pk=2)], spec, RIGHT)
    assert (replay.parts[0].failed, replay.parts[0].none, len(replay.parts[0].failures)) == (4, 4, 1)
    assert "no such thing" in replay.parts[0].failures[0][1].traceback


def test_the_runs_own_scores_stand_for_what_only_the_trainer_scores(monkeypatch: pytest.MonkeyPatch):
    spec = lent(monkeypatch, Cost.TRAINER, function=lambda *_: 1.0)
    of_run = {"rewards": [{"name": "right", "function": "lent", "params": {}}]}
    group = stored("4", "5", before=[0.25, 0.75])
    turn = TrialTurn(until=time.monotonic() + 60)
    [scored] = score([group], [spec], turn, run_spec=of_run)
    assert (scored.columns[0].how, scored.columns[0].values) == (ScoreSource.RECORDED, [0.25, 0.75])
    assert compare([scored], [spec], aggregation="sum_then_normalize").reordered == 0
    [without] = score([group], [spec], turn)
    assert without.columns[0].how is ScoreSource.TRAINER
    assert compare([without], [spec], aggregation="sum_then_normalize").groups == []


def test_only_the_very_same_component_is_taken_from_the_run():
    parts = [{"name": "mine", "function": "think_tags", "params": {"tag": "think"}}]
    assert recorded_as({"rewards": parts}, RewardSpec(name="x", function="think_tags")) == "mine"
    assert recorded_as({"rewards": parts}, RewardSpec(name="x", function="think_tags", params={"tag": "b"})) == ""
    assert recorded_as({"rewards": parts}, RIGHT) == ""
    assert recorded_as({}, RIGHT) == ""


def test_when_the_time_is_up_what_is_scored_is_whole_and_the_rest_is_told():
    groups = [stored("4", "5", before=[1.0, 0.0], pk=pk) for pk in range(1, 4)]
    scored = score(groups, [RIGHT], TrialTurn(until=0.0))
    assert [one.stored.pk for one in scored] == [1]
    replay = compare(scored, [RIGHT], aggregation="sum_then_normalize", requested=len(groups))
    assert (len(replay.groups), replay.requested) == (1, 3)
