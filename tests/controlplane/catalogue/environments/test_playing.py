"""The playground of an environment: calls and whole episodes, carried out as a run does."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from controlplane.catalogue.environments.models import EnvironmentVersion
from controlplane.platform.confined.limits import MAX_SECONDS, Busy, StoppedAtLimit
from controlplane.platform.confined.pool import ChildPool
from runs.pages.playground import confined_play
from runs.pages.playground.episode_play import SECONDS
from tests.controlplane.catalogue.environments.environments import CALCULATOR, an_environment, fields
from tests.controlplane.catalogue.environments.guessing import GUESSING
from tests.controlplane.people import operator
from workers.contract.run.episodes import EpisodeLimits
from workers.environments.executor import MIN_OPENING_S
from workers.environments.library import LIBRARY

pytestmark = pytest.mark.django_db

CALL = {"call": ["c0"], "c0-tool": "calculator", "c0-a_expression": "6 * 7"}
MOVE = {"text": "", "calls": [{"name": "calculator", "arguments": {"expression": "1 + 1"}}]}


def post(what: str, sent: dict[str, Any], version: EnvironmentVersion | None = None) -> str:
    version = version or an_environment()
    answer = operator().post(f"/environments/{version.environment_id}/v1/{what}", sent)
    assert answer.status_code == 200
    return answer.content.decode().replace("&#x27;", "'").replace("&quot;", '"')


def test_the_page_offers_each_tool_with_a_field_for_each_argument() -> None:
    version = an_environment(parts=[CALCULATOR, CALCULATOR | {"name": "other"}])
    page = operator().get(f"/environments/{version.environment_id}/v1/play/").content.decode()
    assert "a_expression" in page
    assert "<option>other</option>" in page
    assert f"?environment={version.pk}" in page


def test_a_call_shows_the_result() -> None:
    assert ">42<" in post("call/", CALL)


def test_a_call_that_fails_shows_what_the_model_would_read() -> None:
    assert "It divides by zero." in post("call/", CALL | {"c0-a_expression": "1 / 0"})


@pytest.mark.parametrize("arguments", ['{"wrong": 1}', "[]", "no JSON", '{"expression": 7}'])
def test_arguments_may_be_wrong_json_as_a_models_are(arguments: str) -> None:
    assert "arguments" in post("call/", CALL | {"c0-json": arguments})


def test_an_argument_that_is_left_out_is_asked_for() -> None:
    version = an_environment()
    page = post("call/", CALL | {"c0-tool": "nothing"}, version)
    assert "Choose a tool." in page


def test_an_episode_begins_with_its_prompt() -> None:
    page = post("move/?begin=1", {"prompt": "What is 6 times 7?", "seed": "3"})
    assert "What is 6 times 7?" in page
    assert "Turn 1 of at most 6" in page


def test_a_turn_with_a_call_is_answered_and_kept_for_the_next() -> None:
    page = post("move/", CALL | {"moves": json.dumps([MOVE]), "text": "Let me see."})
    assert ">2<" in page
    assert ">42<" in page
    assert "Turn 3 of at most 6" in page
    assert "Let me see." in page


def test_a_text_without_a_call_is_the_answer() -> None:
    assert "The episode ended: eos." in post("move/", {"moves": json.dumps([MOVE]), "text": "It is 2."})


def test_the_last_turn_that_is_allowed_ends_the_episode() -> None:
    version = an_environment(limits={"turns": 2})
    assert "The episode ended: turns." in post("move/", CALL | {"moves": json.dumps([MOVE])}, version)


def test_calls_beyond_the_limit_are_refused_in_words() -> None:
    version = an_environment(limits={"calls": 1})
    sent = CALL | {"call": ["c0", "c1"], "c1-tool": "calculator", "c1-a_expression": "1"}
    assert "at most 1 call in one turn" in post("move/", sent, version)


def test_a_turn_can_be_taken_back() -> None:
    page = post("move/?back=1", {"moves": json.dumps([MOVE, MOVE])})
    assert "Turn 2 of at most 6" in page


@pytest.mark.parametrize("moves", ["{", "3", "[3]", '[{"text": ""}]', "[" * 5000])
def test_moves_that_can_not_be_read_are_refused_in_words(moves: str) -> None:
    assert "are invalid. Start again." in post("move/", {"moves": moves})


def test_an_environment_that_the_library_no_longer_has_says_so() -> None:
    version = an_environment(parts=[{"name": "old", "function": "gone", "params": {}}])
    page = operator().get(f"/environments/{version.environment_id}/v1/play/").content.decode()
    assert "There is no tool or environment" in page


@pytest.fixture
def game(monkeypatch: pytest.MonkeyPatch) -> EnvironmentVersion:
    monkeypatch.setitem(LIBRARY, "guessing", GUESSING)
    return an_environment(parts=[{"name": "guessing", "function": "guessing", "params": {}}])


def guesses(*texts: str) -> str:
    return json.dumps([{"text": text, "calls": []} for text in texts])


def test_a_game_answers_each_text_and_its_end_and_rewards_are_shown(game: EnvironmentVersion) -> None:
    drawn = random.Random(3).randint(1, 100)
    page = post("move/", {"seed": "3", "moves": guesses("0"), "text": str(drawn)}, game)
    assert "Guess a number from 1 to 100." in page
    assert "Higher." in page
    assert "The episode ended: done." in page
    assert "The environment’s total reward is 1." in page


def test_the_same_seed_plays_the_same_game_again(game: EnvironmentVersion) -> None:
    pages = [post("move/", {"seed": "5", "moves": guesses("50"), "text": "20"}, game) for _ in range(2)]
    answers = [[word for word in page.split() if word.startswith(("Higher", "Lower"))] for page in pages]
    assert answers[0] == answers[1]


def test_a_game_that_raises_ends_the_episode_in_words(game: EnvironmentVersion) -> None:
    page = post("move/", {"seed": "3", "text": "no number"}, game)
    assert "The episode ended: failed." in page
    assert "ValueError" in page


def test_two_parts_that_are_played_in_are_refused(game: EnvironmentVersion) -> None:
    answer = operator().post("/environments/new/", fields("guessing", "guessing"))
    assert "There can be only one game or server" in answer.content.decode()


def busy(*_: object, **__: object) -> bytes:
    raise Busy("Opening this environment")


def stopped(*_: object, **__: object) -> bytes:
    raise StoppedAtLimit("Playing this episode took longer than 125 seconds, so it was stopped.")


@pytest.mark.parametrize("what", ["move/", "call/", "call_row/?tool=calculator"])
def test_a_turn_whose_tools_cannot_be_listed_now_is_to_be_sent_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, client = an_environment(), operator()
    monkeypatch.setattr(ChildPool, "run", busy)
    place = f"/environments/{version.environment_id}/v1/"
    if what.startswith("call_row"):
        answer = client.get(f"{place}row/?tool=calculator")
    else:
        answer = client.post(place + what, CALL | {"moves": json.dumps([MOVE])})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "the server is busy" in answer.content.decode()


@pytest.mark.parametrize("page", ["play/", ""])
def test_a_page_is_shown_while_no_process_is_free(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version, client = an_environment(), operator()
    monkeypatch.setattr(ChildPool, "run", busy)
    answer = client.get(f"/environments/{version.environment_id}/v1/{page}")
    assert answer.status_code == 200
    assert "the server is busy" in answer.content.decode()


@pytest.mark.parametrize("what", ["move/", "move/?stay=1"])
def test_moves_that_were_played_are_kept_if_the_process_is_stopped(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    version = an_environment()
    monkeypatch.setattr(ChildPool, "run", stopped)
    page = post(what, CALL | {"moves": json.dumps([MOVE])}, version)
    assert f'name="moves" value="{json.dumps([MOVE])}"' in page
    assert "so it was stopped" in page
    assert "Try again" in page


@pytest.mark.parametrize("call_s", [0.1, 20.0, 3600.0])
def test_a_process_has_time_for_all_that_the_limits_allow(call_s: float) -> None:
    seconds = confined_play.seconds_for(EpisodeLimits(call_s=call_s))
    call_s = min(call_s, SECONDS)
    assert MAX_SECONDS > seconds > SECONDS + MIN_OPENING_S + max(MIN_OPENING_S, call_s) + call_s
