"""The playground of an environment: a model plays in it, and the episode is scored."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.catalogue.rewards import saving
from controlplane.catalogue.rewards.saving import RewardComposition
from tests.controlplane.catalogue.environments.chat_server import ChatServer, calling
from tests.controlplane.catalogue.environments.environments import an_environment
from tests.controlplane.catalogue.environments.guessing import GUESSING
from tests.controlplane.people import operator
from tests.controlplane.platform.accounts.secret_rows import KEY, an_endpoint
from workers.environments.library import LIBRARY

pytestmark = pytest.mark.django_db

SUM = calling("calculator", {"expression": "6 * 7"})
PLAYER = {"endpoint": "PLAYER", "model": "a-model", "max_tokens": "64", "prompt": "What is 6 times 7?", "seed": "3"}


def post(what: str, sent: dict[str, Any], version: EnvironmentVersion) -> str:
    answer = operator().post(f"/environments/{version.environment_id}/v1/{what}", sent)
    assert answer.status_code == 200
    return answer.content.decode().replace("&#x27;", "'")


def moves_in(page: str) -> str:
    """As the page sends them back."""
    found = re.search(r'name="moves" value="([^"]*)"', page)
    assert found
    return unescape(found[1])


def played(server: ChatServer, version: EnvironmentVersion | None = None, **more: Any) -> list[str]:
    """The pages of an episode, one for each turn that the page asks for by itself."""
    an_endpoint("PLAYER", address=server.address, private_too=True)
    version, pages = version or an_environment(), list[str]()
    moves = "[]"
    while not pages or "The model writes turn" in pages[-1]:
        pages.append(post("model/?on=1", {**PLAYER, **more, "moves": moves}, version))
        moves = moves_in(pages[-1])
    return pages


def test_a_model_plays_turn_by_turn_until_it_answers() -> None:
    with ChatServer(SUM, {"content": "It is 42."}) as server:
        first, last = played(server)
    assert "The model writes turn 2 of at most 6" in first
    assert "The episode ended: eos." in last
    [_, (headers, body)] = server.asked
    assert headers["Authorization"] == f"Bearer {KEY}"
    assert [one["role"] for one in body["messages"]] == ["user", "assistant", "tool"]
    assert body["messages"][2] == {"role": "tool", "tool_call_id": "call_1_0", "content": "42"}
    assert body["tools"][0]["function"]["name"] == "calculator"


def test_a_game_is_played_by_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LIBRARY, "guessing", GUESSING)
    version = an_environment(parts=[{"name": "guessing", "function": "guessing", "params": {}}], limits={"turns": 2})
    with ChatServer({"content": "0", "reasoning_content": "Low?"}, {"content": "101"}) as server:
        last = played(server, version)[-1]
    assert "The episode ended: turns." in last
    assert "Low?" in last
    assert [one["content"] for one in server.asked[1][1]["messages"][1:]] == ["0", "Higher."]
    assert "tools" not in server.asked[0][1]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (400, "vLLM needs --enable-auto-tool-choice"),
        (401, "PLAYER returned no turn. It answered 401"),
        ("no JSON", "The server's response is not a chat completion."),
        ('{"choices": [{"message": {"tool_calls": [3]}}]}', "The server's response is not a chat completion."),
        ({"content": "<tool_call>{}</tool_call>"}, "its server returned it as text"),
        ({"content": ""}, "The model wrote nothing."),
    ],
)
def test_a_turn_that_is_not_written_says_why_and_keeps_the_episode(reply: Any, words: str) -> None:
    with ChatServer(SUM, reply) as server:
        last = played(server)[-1]
    assert words in last
    assert len(json.loads(moves_in(last))) == 1
    assert KEY not in last


def test_calls_that_fit_no_tool_are_answered_in_words() -> None:
    with ChatServer(calling("calculator", "{"), calling("search", {"\ud800": 1}), {"content": "No."}) as server:
        last = played(server)[-1]
    assert "must be a JSON object" in last
    assert "There is no tool called 'search'" in last


def test_a_server_that_is_not_there_is_said_in_words() -> None:
    with ChatServer() as server:
        pass
    assert "PLAYER returned no turn. The connection failed" in played(server)[-1]


def test_a_model_must_be_chosen() -> None:
    page = post("model/?begin=1&on=1", {"prompt": "2 + 2?", "model": "", "max_tokens": "0"}, an_environment())
    assert "Choose the model's endpoint." in page
    assert "Enter the model's name on that server." in page
    assert "The model writes turn" not in page


def test_a_stop_shows_the_episode_so_far() -> None:
    move = {"text": "", "calls": [{"name": "calculator", "arguments": {"expression": "1 + 1"}}]}
    page = post("move/?stay=1", {"moves": json.dumps([move])}, an_environment())
    assert "Turn 2 of at most 6" in page


def test_a_long_result_says_where_it_was_cut_and_where_a_run_would() -> None:
    version = an_environment(limits={"output_tokens": 2})
    sent = {"call": ["c0"], "c0-tool": "calculator", "c0-a_expression": "2 ** 60"}
    assert "Truncated to 8 characters here; a run truncates at 2 tokens." in post("call/", sent, version)
    assert "1 result was truncated to 8 characters here; a run truncates at 2 tokens." in post("move/", sent, version)


# --- scores ------------------------------------------------------------------------------------------------------

EPISODE = [
    {"role": "assistant", "content": "Hm", "tool_calls": [{"type": "function", "function": {"name": "calculator"}}]},
    {"role": "tool", "name": "calculator", "content": "42"},
    {"role": "assistant", "content": "It is 42."},
]


def scored(*components: dict[str, Any], messages: Any = EPISODE, **sent: Any) -> str:
    config = saving.make("by", RewardComposition(list(components), "sum_then_normalize", 1.0))
    episode = messages if isinstance(messages, str) else json.dumps(messages)
    return post("scores/", {"reward_version": config.pk, "episode": episode, **sent}, an_environment())


def test_an_episode_is_scored_by_component_and_in_all() -> None:
    found = {"name": "found", "function": "answer_in_results", "weight": 2.0, "per_turn": True}
    right = {"name": "right", "function": "numeric_match", "weight": 0.5}
    page = scored(found, right, prompt="What is 6 times 7?", row_answer="42")
    assert "<strong>0.500</strong>" in page
    assert "not to the total" in page
    assert ">1:</span> 2</span>" in page


def test_a_component_without_what_it_needs_says_so() -> None:
    page = scored({"name": "right", "function": "numeric_match"}, {"name": "old", "function": "gone"})
    assert "It needs these columns of a dataset row: answer." in page
    assert "This reward is no longer in the library." in page
    assert "No component applies to this episode." in page


@pytest.mark.parametrize("messages", ["{", "[]", "[3]", '[{"role": "tool"}]', "[" * 5000, '"\\ud800"'])
def test_an_episode_that_can_not_be_scored_says_so(messages: str) -> None:
    assert "There is no turn to score yet." in scored(messages=messages)


def test_a_config_must_be_chosen() -> None:
    sent = {"episode": json.dumps(EPISODE), "reward_version": "9" * 30}
    assert "Choose a reward config." in post("scores/", sent, an_environment())
