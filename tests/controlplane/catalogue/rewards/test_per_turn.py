"""A component that scores each turn: in the editor, in YAML, between versions, in the playground."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.rewards import config_yaml, saving
from controlplane.catalogue.rewards.balance import balance
from controlplane.catalogue.rewards.models import RewardConfig, RewardVersion
from controlplane.catalogue.rewards.turns import turn
from controlplane.catalogue.rewards.views import differences
from runs.insight.scoring.evaluating import column
from runs.insight.scoring.scoring import try_on
from tests.controlplane.catalogue.rewards.test_pages import fields, save
from tests.controlplane.people import operator
from workers.contract.run.spec import RewardSpec, outcome_weights
from workers.rewards.reward import Completion

pytestmark = pytest.mark.django_db

EACH = {"name": "found", "function": "answer_in_results", "weight": 1.0, "params": {}, "per_turn": True}
WHOLE = {"name": "right", "function": "exact_match", "weight": 2.0, "params": {}}


def errors(text: str) -> str:
    return " ".join(str(form.errors) for form in config_yaml.read(text.encode()).rows)


def test_the_editor_saves_it_and_shows_it_again() -> None:
    assert save(fields("length", "think_tags", **{"c0-scores": "turns", "c1-scores": "whole"})).status_code == 302
    each, whole = RewardVersion.objects.get().components
    assert (each["per_turn"], "per_turn" in whole) == (True, False)
    config = RewardConfig.objects.get()
    page = operator().get(f"/rewards/{config.pk}/").content.decode()
    assert page.count('<option value="turns" selected>') == 1
    assert '<span class="tag">each turn</span>' in operator().get(f"/rewards/{config.pk}/v1/").content.decode()


def test_yaml_carries_it_and_refuses_what_is_no_choice() -> None:
    document = config_yaml.export(saving.make("mine", [EACH, WHOLE]))
    assert document.count("per_turn: true") == document.count("per_turn") == 1
    [each, whole] = config_yaml.read(document.encode()).rows
    assert (each.spec().per_turn, whole.spec().per_turn) == (True, False)
    of = "name: n\ncomponents:\n- function: {}\n  per_turn: {}\n"
    assert "per_turn: expected true or false, got often" in errors(of.format("length", "often"))
    assert "Ranking judge scores whole completions only" in errors(of.format("judge_ranking", "true"))


def test_a_change_of_it_is_a_version_with_a_difference() -> None:
    first = saving.make("mine", [EACH, WHOLE])
    second, fresh = saving.save(first.config, [{**EACH, "per_turn": False}, WHOLE])
    assert fresh
    [change] = differences(first, second)
    assert (change.name, change.before, change.after) == ("found scores", "each turn", "the whole completion")


def test_it_moves_no_total_unless_turns_are_all_that_is_scored() -> None:
    specs = [RewardSpec(**EACH), RewardSpec(**WHOLE)]
    assert outcome_weights(specs) == [0.0, 2.0]
    assert outcome_weights(specs[:1]) == [1.0]
    assert balance(specs, "sum_then_normalize").range == "0 to 2"


def test_the_playground_shows_the_mean_of_a_completions_turns_and_that_it_is_not_in_the_total() -> None:
    said: list[dict[str, Any]] = [{"role": "assistant", "content": text} for text in ("aa", "ab", "abc")]
    spec = RewardSpec("variety", "unique_chars_normalised", per_turn=True)
    used = turn(10)
    scored = column(spec, [Completion("abc", tuple(said)), Completion("aabb")], [{}, {}], used)
    assert scored.values == [pytest.approx((0.5 + 1 + 1) / 3), 0.5]
    turns: list[dict[str, Any]] = [{"role": "assistant", "content": text} for text in ("aa", "abc")]
    each = RewardSpec("variety", "unique_chars_normalised", 3.0, per_turn=True)
    trial = try_on([each, RewardSpec("said", "length")], {}, [Completion("abc", tuple(turns)), Completion("abcd")])
    assert [one.apart for one in trial.columns] == [True, False]
    assert trial.columns[0].share in (None, 0.0)
    assert not any(one.apart for one in try_on([each], {}, [Completion("abc", tuple(turns))]).columns)


def test_another_component_in_its_place_keeps_that_it_scores_turns() -> None:
    sent = {"function": "unique_chars_normalised", "instead": "c0", "c0-name": "mine", "c0-scores": "turns"}
    assert '<option value="turns" selected>' in operator().get("/rewards/component/", sent).content.decode()
