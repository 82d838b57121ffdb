"""Rewards and environments tried by the API."""

from __future__ import annotations

import pytest

from controlplane.platform.accounts.models import ApiScope
from tests.controlplane.catalogue.environments.environments import an_environment
from tests.runs.api.clients import Program
from tests.runs.builders import an_attempt, rewards_named

pytestmark = pytest.mark.django_db
CONFIG = "components:\n  - {name: right, function: numeric_match, weight: 1.0}\n"
ROW = {"prompt": "What is 6 times 7?", "answer": "42"}
COMPLETIONS = ["<answer>42</answer>", "<answer>41</answer>"]


def test_completions_are_scored_by_a_config_that_is_not_saved() -> None:
    answer = Program().post("rewards/try", {"document": CONFIG, "row": ROW, "completions": COMPLETIONS})
    assert answer.status_code == 200, answer.json()
    right, wrong = answer.json()["completions"]
    assert (right["scores"][0]["value"], wrong["scores"][0]["value"]) == (1.0, 0.0)
    assert right["advantage"] > 0 > wrong["advantage"]


def test_a_saved_config_scores_too_and_an_unknown_one_is_named() -> None:
    program, version = Program(), rewards_named("tags").pk
    body = {"row": ROW, "completions": COMPLETIONS}
    assert len(program.post("rewards/try", {**body, "reward_version": version}).json()["components"]) == 1
    assert program.post("rewards/try", {**body, "reward_version": 10**9}).json()["error"]["where"] == "reward_version"
    assert program.post("rewards/try", {**body, "document": "- 1"}).status_code == 422


def test_custom_code_is_tried_by_admins_only() -> None:
    source = "def reward(completions, **columns): return [0.0 for _ in completions]"
    code = f"components:\n  - {{name: mine, function: python, params: {{source: '{source}'}}}}\n"
    for program, status in ((Program(), 403), (Program(ApiScope.ADMIN), 200)):
        body = {"document": code, "row": ROW, "completions": ["x"]}
        assert program.post("rewards/try", body).status_code == status


def test_a_run_without_texts_has_nothing_to_replay() -> None:
    answer = Program().post("rewards/replay", {"document": CONFIG, "run": an_attempt().run_id})
    assert (answer.status_code, "nothing to score again" in answer.json()["error"]["what"]) == (409, True)


def test_an_episode_is_played_and_scored() -> None:
    version, program = an_environment(), Program()
    path = f"environments/{version.environment_id}/{version.number}"
    opened = program.post(f"{path}/play", {"row": ROW})
    assert opened.status_code == 200, opened.json()
    assert opened.json()["item"]["tools"]
    tool = opened.json()["item"]["tools"][0]["function"]["name"]
    called = program.post(f"{path}/call", {"tool": tool, "arguments": {"expression": "6 * 7"}})
    assert "42" in called.json()["item"]["text"]
    ended = program.post(f"{path}/play", {"row": ROW, "moves": [{"text": "42"}]}).json()["item"]
    scored = program.post(
        f"{path}/scores", {"row": ROW, "reward_version": rewards_named("tags").pk, "messages": ended["messages"]}
    )
    assert scored.status_code == 200, scored.json()
    assert program.post(f"{path}/call", {"tool": "nothing"}).json()["item"]["error"]


def test_a_model_plays_only_at_an_endpoint_that_is_stored() -> None:
    version = an_environment()
    player = {"endpoint": "NOWHERE", "model": "tiny"}
    answer = Program().post(f"environments/{version.environment_id}/1/model", {"row": ROW, "player": player})
    assert (answer.status_code, answer.json()["error"]["where"]) == (422, "player.endpoint")
