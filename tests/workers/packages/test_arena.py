"""TextArena with the real package, where its interpreter is built: every game that is offered, as an environment."""

from __future__ import annotations

import pytest

from tests.workers.packages.built import tools_with
from workers.contract.run.episodes import ToolError
from workers.environments.library import LIBRARY
from workers.packages.arena import GAMES
from workers.rewards.tools import Tools, Unavailable

pytestmark = pytest.mark.processes
ENTRY = LIBRARY["textarena"]


@pytest.fixture(scope="module")
def tools():
    with tools_with("textarena") as opened:
        yield opened


def game(tools, **params):
    assert ENTRY.check(params) == []
    return ENTRY.open("game", ENTRY.build(params), tools)


def test_each_game_begins_and_answers_the_same_for_the_same_seed(tools, subtests):
    for name in GAMES:
        with subtests.test(name=name):
            said = []
            for _ in range(2):
                session = game(tools, game=name, moves=2)
                said.append([session.reset({}, 7), session.answer("[1]", 20), session.answer("I don't know.", 20)])
            assert said[0] == said[1]
            rules, *_, last = said[0]
            assert len(rules) > 100
            assert last.done
            assert isinstance(last.reward, float)


def test_a_number_is_guessed_by_its_hints(tools):
    session, low, high = game(tools), 1, 20
    session.reset({}, 3)
    for _ in range(6):
        middle = (low + high) // 2
        said = session.answer(f"I try [{middle}]", 20)
        if said.done:
            break
        low, high = (low, middle - 1) if "lower" in said.text else (middle + 1, high)
    assert said.done
    assert said.reward == 1.0


def test_a_move_that_takes_too_long_is_an_error_and_the_game_goes_on(tools):
    session = game(tools)
    session.reset({}, 3)
    assert session.answer("[5]", 0.0).error is ToolError.TIMEOUT
    assert session.answer("[5]", 20).error is None


def test_without_the_interpreter_a_game_says_what_to_do(monkeypatch):
    monkeypatch.setenv("GRPO_ENVIRONMENTS_PYTHON", "/nowhere/python")
    with pytest.raises(Unavailable, match="/nowhere/python"):
        game(Tools(open_sandbox=None))  # type: ignore[arg-type]
