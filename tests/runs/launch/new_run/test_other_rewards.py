"""A second reward config for a run's evaluations: chosen on New run, checked, frozen, shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.models import RewardVersion
from runs.launch.preflight.finding import Grade
from tests.controlplane.people import operator
from tests.runs.launch.new_run.launching_page import a_ready_host, sent
from tests.runs.launch.new_run.test_launch_form import launched, refusals
from tests.runs.launch.preflight.test_preflight import REWARD, found
from workers.contract.run.spec import RewardSpec

EVALUATED: dict[str, Any] = {"eval_rows": 8, "eval_rewards": (RewardSpec("short", "length"),)}
CASES: list[tuple[dict[str, Any], Grade, str, str]] = [
    ({"keep_best": "eval_other_reward", "eval_rows": 8}, Grade.WARN, "keep_best", "a second reward config for"),
    ({**EVALUATED, "keep_best": "other_reward"}, Grade.WARN, "keep_best", "Only evaluations compute"),
    (
        {**EVALUATED, "keep_best": "rewards/short/mean"},
        Grade.WARN,
        "keep_best",
        "short is computed only in evaluations",
    ),
    ({**EVALUATED, "keep_best": "eval_rewards/typo/mean"}, Grade.WARN, "keep_best", "no component typo"),
    ({**EVALUATED, "eval_rows": 0}, Grade.WARN, "eval_reward_version", "but the run makes none"),
    ({**EVALUATED, "eval_rewards": (REWARD,)}, Grade.STOP, "eval_reward_version", "Both reward configs have right"),
    (
        {**EVALUATED, "eval_rewards": (RewardSpec("x", "gone"),)},
        Grade.STOP,
        "eval_reward_version",
        "there is no reward gone",
    ),
]


pytestmark = pytest.mark.django_db


@pytest.fixture
def client() -> Client:
    a_ready_host()
    return operator()


def test_other_rewards_are_frozen_for_evaluations_alone(client):
    sent()  # the rewards that are trained on
    other = saving.make("wordy", [{"name": "length", "function": "length", "weight": 2.0}])
    run = launched(client, eval_rows="16", eval_reward_version=str(other.pk))
    assert [part["name"] for part in run.spec["rewards"]] == ["format"]
    assert [(part["name"], part["weight"]) for part in run.spec["eval_rewards"]] == [("length", 2.0)]
    assert run.eval_reward_version == other
    assert "In evaluations only" in client.get(f"/runs/{run.pk}/spec/").content.decode()
    without = launched(client, name="none", eval_reward_version=str(other.pk))
    assert (without.spec["eval_rewards"], without.eval_reward_version) == ([], None)


def test_other_rewards_of_the_same_names_are_refused_beside_their_field(client):
    same = client.post("/runs/new/", sent(eval_rows="16") | {"eval_reward_version": RewardVersion.objects.get().pk})
    assert same.status_code == 422
    assert "Both reward configs have format" in " ".join(refusals(same)["eval_reward_version"])


def test_preflight_says_what_cannot_come(subtests: pytest.Subtests) -> None:
    for changes, grade, field, words in CASES:
        with subtests.test(field=field):
            [finding] = [each for each in found(**changes) if each.field == field]
            assert (finding.grade, words in finding.cause, bool(finding.fix)) == (grade, True, True)


@pytest.mark.parametrize("metric", ["eval_other_reward", "eval_rewards/short/mean", "eval_rewards/right/mean"])
def test_the_best_checkpoint_can_be_kept_by_the_other_rewards_of_evaluations(metric: str) -> None:
    assert not [finding for finding in found(**EVALUATED, keep_best=metric) if finding.field == "keep_best"]
