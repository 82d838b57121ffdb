from __future__ import annotations

import dataclasses
import math
import time
from typing import Any

import pytest

from controlplane.catalogue.rewards import turns
from controlplane.catalogue.rewards.turns import TrialTurn
from runs.insight.scoring import evaluating, scoring
from runs.insight.scoring.evaluating import ScoreSource
from runs.pages.playground.completions_source import suggest_completions
from workers.contract.run.spec import RewardSpec
from workers.rewards.entries.custom import PythonParams
from workers.rewards.library import LIBRARY
from workers.rewards.parameters import Params
from workers.rewards.reward import Completion, Cost, Reward, Scores
from workers.rewards.scoring import all_failed
from workers.rewards.tools import Unavailable
from workers.sandbox import selftest
from workers.sandbox.outcomes import SandboxUnavailable

THINKS = RewardSpec(name="thinks", function="think_tags")
RIGHT = RewardSpec(name="right", function="numeric_match", weight=2.0)
ROW = {"row": 0, "prompt": "2+2?", "answer": "4"}


def lent(monkeypatch: pytest.MonkeyPatch, params: type[Params] = Params, **changes: Any) -> RewardSpec:
    """A component of a reward that the library has only here."""
    reward = Reward(key="lent", title="Lent", help="", params=params, range=(0.0, 1.0), **changes)
    monkeypatch.setitem(LIBRARY, "lent", reward)
    return RewardSpec(name="lent", function="lent")


def never(*_: Any) -> Scores:
    raise AssertionError("it was scored all the same")


def test_the_suggested_completions_are_told_apart():
    trial = scoring.try_on([THINKS, RIGHT], ROW, suggest_completions(ROW))
    assert [one.total for one in trial.group] == [3.0, 2.0, 1.0, 0.0]
    assert trial.columns[1].column.values == [1.0, 1.0, 0.0, 0.0]


def test_advantages_are_distances_from_the_mean_in_deviations():
    trial = scoring.try_on([RIGHT], ROW, ["4", "5"])
    assert trial.mean == 1.0
    assert trial.deviation is not None
    assert math.isclose(trial.deviation, math.sqrt(2))
    assert [round(one.advantage, 3) for one in trial.group] == [0.707, -0.707]
    assert round(trial.widest, 3) == 0.707


@pytest.mark.parametrize("aggregation", ["sum_then_normalize", "normalize_then_sum"])
def test_shares_of_the_variance_add_up(aggregation: str):
    trial = scoring.try_on([THINKS, RIGHT], ROW, suggest_completions(ROW), aggregation=aggregation)
    shares = [one.share or 0.0 for one in trial.columns]
    assert math.isclose(sum(shares), 1.0)
    assert shares[1] > shares[0] > 0


def test_normalised_by_itself_a_scale_says_nothing_and_a_weight_all():
    wide = RewardSpec(name="wide", function="unique_chars", weight=1.0)
    trial = scoring.try_on([wide, THINKS], ROW, ["<think>a</think>b", "abcdefghijk"], aggregation="normalize_then_sum")
    assert trial.group[0].advantage == pytest.approx(0.0, abs=1e-3)
    summed = scoring.try_on([wide, THINKS], ROW, ["<think>a</think>b", "abcdefghijkl"])
    assert summed.group[0].advantage < -0.7


@pytest.mark.parametrize("texts", [["4", "4"], ["4"], []])
def test_a_group_without_spread_has_no_advantage(texts: list[str]):
    trial = scoring.try_on([RIGHT], ROW, texts)
    assert [one.advantage for one in trial.group] == [0.0] * len(texts)
    assert [one.share for one in trial.columns] == [None]
    assert trial.flat


def test_a_reward_that_does_not_apply_counts_nothing():
    trial = scoring.try_on([THINKS, RIGHT], {"prompt": "x", "answer": None}, ["<think>a</think>b"])
    assert [cell.value for cell in trial.group[0].scores] == [1.0, None]
    assert trial.group[0].total == 1.0
    assert scoring.try_on([RIGHT], {"prompt": "x", "answer": None}, ["a"]).group[0].total is None


def test_a_failure_is_told_with_its_traceback_and_counts_as_not_applicable(monkeypatch: pytest.MonkeyPatch):
    def picky(text: str, *_: Any) -> float:
        if text == "b":
            raise KeyError("it has no b")
        return 1.0

    trial = scoring.try_on([lent(monkeypatch, function=picky), RIGHT], ROW, ["a", "b"])
    [failure] = trial.columns[0].column.failures
    assert (failure.index, "no b" in failure.message, "picky" in failure.traceback) == (1, True, True)
    assert [scored.scores[0].failed != "" for scored in trial.group] == [False, True]
    assert trial.group[1].total == 0.0


def test_what_only_the_trainer_scores_is_left_out_of_the_totals(monkeypatch: pytest.MonkeyPatch):
    trial = scoring.try_on([lent(monkeypatch, batch=never, cost=Cost.TRAINER), RIGHT], ROW, ["4", "5"])
    assert [one.total for one in trial.group] == [2.0, 0.0]
    assert [(one.spec.name, one.how) for one in trial.missing] == [("lent", ScoreSource.TRAINER)]
    alone = scoring.try_on([RewardSpec(name="lent", function="lent")], ROW, ["4"])
    assert (alone.counted, alone.group[0].total) == ([], None)


def test_another_server_is_asked_only_when_somebody_says_so(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    def judge(completions: Any, *_: Any) -> Scores:
        asked.append(len(completions))
        return Scores([0.5] * len(completions))

    spec = lent(monkeypatch, batch=judge, cost=Cost.HTTP)
    assert scoring.try_on([spec], ROW, ["a"]).missing[0].how is ScoreSource.ASKS
    assert asked == []
    assert scoring.try_on([spec], ROW, ["a"], ask=True).group[0].total == 0.5
    assert asked == [1]


def test_another_server_is_waited_for_no_longer_than_a_page_may_take(monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []

    def judge(completions: Any, rows: Any, params: Any, tools: Any) -> Scores:
        waits.extend((params.timeout_s, params.batch_s))
        return Scores([0.5])

    monkeypatch.setitem(LIBRARY, "judge", dataclasses.replace(LIBRARY["judge"], batch=judge))
    spec = RewardSpec(name="judged", function="judge", params={"timeout_s": 2.0, "batch_s": 300.0})
    scoring.try_on([spec], ROW, ["a"], trial_turn=turns.turn(20), ask=True)
    assert waits[0] == 2.0
    assert 10 < waits[1] <= 20


def test_without_a_sandbox_nothing_runs_and_the_reason_is_told(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: Any) -> Any:
        raise SandboxUnavailable("bubblewrap: user namespaces are refused.")

    def runs_code(completions: Any, rows: Any, params: Any, tools: Any) -> Scores:
        tools.sandbox().run([])
        raise AssertionError("there is no sandbox")

    monkeypatch.setattr("controlplane.catalogue.rewards.turns.shared_sandbox", refused)
    trial = scoring.try_on([lent(monkeypatch, batch=runs_code, cost=Cost.SANDBOX), RIGHT], ROW, ["4", "5"])
    [column] = trial.missing
    assert (column.how, column.why) == (ScoreSource.UNAVAILABLE, "bubblewrap: user namespaces are refused.")
    assert [one.total for one in trial.group] == [2.0, 0.0]


def test_a_length_in_tokens_waits_for_completions_whose_tokens_were_counted():
    long = RewardSpec("long", "overlong", params={"maximum": 4, "buffer": 0})
    trial = scoring.try_on([long, RIGHT], ROW, ["4", "5"])
    assert [(one.spec.name, one.how, "aren't counted" in one.why) for one in trial.missing] == [
        ("long", ScoreSource.UNAVAILABLE, True)
    ]
    assert [one.scores[0].failed for one in trial.group] == ["", ""]
    counted = scoring.try_on([long], ROW, [Completion("4", tokens=5), Completion("5", tokens=1)])
    assert [one.total for one in counted.group] == [-1.0, 0.0]


@pytest.mark.skipif(selftest.probe().backend is None, reason="no sandbox holds on this machine")
def test_a_reference_answer_that_prints_nothing_is_told_and_no_zero():
    prints = RewardSpec(name="prints", function="same_output")
    trial = scoring.try_on([prints, RIGHT], ROW | {"answer": "x = 4"}, ["```python\nprint(4)\n```", "no code"])
    turns.close()
    assert [failure.index for failure in trial.columns[0].column.failures] == [0, 1]
    assert "prints nothing" in trial.group[0].scores[0].failed
    assert trial.columns[0].column.values == [None, None]


def test_an_endpoint_that_is_not_there_is_a_failure_and_no_zero(monkeypatch: pytest.MonkeyPatch):
    def judge(completions: Any, rows: Any, params: Any, tools: Any) -> Scores:
        turns.endpoint("NOBODY")
        raise AssertionError("there is none")

    def none(name: str) -> Any:
        raise Unavailable(f"There is no endpoint named {name}.")

    monkeypatch.setattr("controlplane.catalogue.rewards.turns.endpoint", none)
    trial = scoring.try_on([lent(monkeypatch, batch=judge, cost=Cost.HTTP)], ROW, ["a"], ask=True)
    assert "no endpoint named NOBODY" in trial.columns[0].column.failures[0].message
    assert trial.group[0].total is None


def test_what_the_time_was_too_short_for_has_no_score(monkeypatch: pytest.MonkeyPatch):
    def runs_code(completions: Any, rows: Any, params: Any, tools: Any) -> Scores:
        tools.sandbox().run([object()])
        raise AssertionError("its time was up")

    monkeypatch.setattr(
        "controlplane.catalogue.rewards.turns.shared_sandbox", lambda preload: type("Held", (), {"backend": None})
    )
    spec = lent(monkeypatch, batch=runs_code, cost=Cost.SANDBOX)
    column = evaluating.column(spec, [evaluating.Completion("a")], [ROW], TrialTurn(until=0.0))
    assert (column.how, column.values) == (ScoreSource.LATE, [None])


@pytest.mark.parametrize(("left", "how"), [(20.0, ScoreSource.SCORED), (0.0, ScoreSource.LATE)])
def test_code_runs_no_longer_than_the_page_has_time(monkeypatch: pytest.MonkeyPatch, left: float, how: ScoreSource):
    """What fails on a page's own limit is said to be late, never wrong."""
    given = []

    def runs_code(completions: Any, rows: Any, params: Any, tools: Any) -> Scores:
        given.append(params.seconds)
        return all_failed(1, "timeout", "It took too long.")

    spec = lent(monkeypatch, batch=runs_code, cost=Cost.SANDBOX, params=PythonParams)
    spec = RewardSpec(spec.name, spec.function, params={"seconds": 600.0})
    column = evaluating.column(spec, [evaluating.Completion("a")], [ROW], TrialTurn(until=time.monotonic() + left))
    assert 0 < given[0] <= max(1.0, left)
    assert (column.how, bool(column.failures)) == (how, how is ScoreSource.SCORED)


def test_the_next_turn_of_a_page_ends_the_one_before_and_no_other_pages():
    first, other = turns.turn(60, requester="session.page"), turns.turn(60, requester="session.other")
    assert not first.over
    second = turns.turn(60, requester="session.page")
    assert (first.over, second.over, other.over, turns.turn(60).over) == (True, False, False, False)
    with pytest.raises(turns.OutOfTime), first.slice():
        pass
