"""What an environment may do to an episode, and what the model then reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.workers.environments.sessions import Scripted, executor
from workers.contract.run.episodes import ToolError
from workers.environments.entry import EntryKind, Result
from workers.environments.executor import Call, EnvironmentAnswer, Executor, Move, Unusable
from workers.rewards.tools import Unavailable


def answers(played_by: Executor, *calls: Call, text: str = "") -> list[EnvironmentAnswer]:
    (played,) = played_by.begin([{}], [0])
    try:
        (given,) = played_by.carry_out([Move(played, calls, text)])
    finally:
        played_by.close([played])
    return given


def shouting(does: Callable[[str], Any], **limits: Any) -> Executor:
    return executor(lambda name: Scripted(name, does=does), **limits)


def shout(word: Any = "a") -> Call:
    return Call("shout", {"word": word})


def test_calls_of_all_episodes_run_side_by_side_and_answers_keep_their_order() -> None:
    together = threading.Barrier(6, timeout=20)

    def does(word: str) -> Result:
        together.wait()
        return Result(word.upper())

    by = shouting(does, at_once=6)
    played = by.begin([{}] * 3, [0] * 3)
    given = by.carry_out([Move(one, [shout(f"a{i}"), shout(f"b{i}")]) for i, one in enumerate(played)])
    assert [[one.text for one in each] for each in given] == [["A0", "B0"], ["A1", "B1"], ["A2", "B2"]]


def test_no_more_run_at_once_than_allowed() -> None:
    running, most, lock = 0, 0, threading.Lock()

    def does(word: str) -> Result:
        nonlocal running, most
        with lock:
            running, most = running + 1, max(most, running + 1)
        with lock:
            running -= 1
        return Result(word)

    given = answers(shouting(does, at_once=2, calls=40), *[shout(str(i)) for i in range(40)])
    assert [one.text for one in given] == [str(i) for i in range(40)]
    assert most <= 2


def test_a_blocked_call_is_left_behind_with_its_session_closed_and_the_tool_works_in_the_next_turn() -> None:
    opened: list[Scripted] = []

    def make(name: str) -> Scripted:
        session = Scripted(name)
        session.does = lambda word: Result("late") if word == "wait" and session.closed.wait(60) else Result(word)
        opened.append(session)
        return session

    by = executor(make, call_s=0.1, at_once=1)
    (played,) = by.begin([{}], [0])
    (first,) = by.carry_out([Move(played, [shout("wait"), shout("b")])])
    assert [(one.error, one.failed) for one in first] == [(ToolError.TIMEOUT, False), ("", False)]
    assert first[0].text == "shout took longer than 0.1 s, and was stopped."
    assert opened[1].closed.wait(10)
    (second,) = by.carry_out([Move(played, [shout("c")])])
    assert second[0].text == "c"


def test_a_tool_is_not_opened_again_beyond_the_deadline_of_its_episode() -> None:
    opened, release = threading.Semaphore(0), threading.Event()

    def make(name: str) -> Scripted:
        opened.release()
        if opened._value > 2:  # the first lists the tools, the second plays
            release.wait(60)
        return Scripted(name, does=lambda word: Result(str(release.wait(60))))

    by = executor(make, call_s=20)
    (played,) = by.begin([{}], [0])
    by.carry_out([Move(played, [shout()], deadline=time.monotonic() + 0.1)])
    began = time.monotonic()
    (late,) = by.carry_out([Move(played, [shout()], deadline=began + 0.1)])
    assert time.monotonic() - began < 10
    assert (late[0].error, late[0].text) == (
        ToolError.UNAVAILABLE,
        "shout is not available: it can't be opened: It took too long.",
    )
    played_again = replace(played, missing={}, sessions={"shout": None})
    (later,) = by.carry_out([Move(played_again, [shout()], deadline=began)])
    assert later[0].text == "shout is not available: no time was left in this episode to open it again."
    assert opened._value == 3
    release.set()


def test_a_tool_that_raises_is_a_sentence_for_the_model() -> None:
    def does(word: str) -> Result:
        raise {"exit": SystemExit(3), "gone": Unavailable("There is no server."), "late": TimeoutError("Slow.")}.get(
            word, ValueError("no such word")
        )

    given = answers(shouting(does), *[shout(word) for word in ("a", "exit", "gone", "late")])
    errors = [ToolError.RAISED, ToolError.RAISED, ToolError.UNAVAILABLE, ToolError.TIMEOUT]
    assert [one.error for one in given] == errors
    assert given[0].text == "shout failed: ValueError: no such word"
    assert given[2].text == "shout failed: There is no server."


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (Call("", None, unreadable=True), ToolError.UNREADABLE, "Your call can't be parsed, and nothing was called."),
        (Call("whisper", {}), ToolError.UNKNOWN, "There is no tool called 'whisper'. The tools are: shout."),
        (Call("shout", {}), ToolError.ARGUMENTS, "shout needs 'word'."),
        (Call("shout", None), ToolError.ARGUMENTS, "The arguments of shout must be a JSON object."),
        (Call("shout", "[1]"), ToolError.ARGUMENTS, "The arguments of shout must be a JSON object."),
        (Call("shout", {"word": "a", "loud": 1}), ToolError.ARGUMENTS, "shout has no argument 'loud'."),
        (Call("shout", {"word": 1}), ToolError.ARGUMENTS, "The arguments of shout don't fit"),
    ],
)
def test_calls_that_fit_no_tool_are_explained(call: Call, error: ToolError, words: str) -> None:
    (given,) = answers(shouting(lambda word: Result(word)), call)
    assert given.error == error
    assert given.text.startswith(words)


def test_arguments_may_be_a_text_of_json() -> None:
    (given,) = answers(shouting(lambda word: Result(word)), Call("shout", '{"word": "b"}'))
    assert given == EnvironmentAnswer("b", seconds=given.seconds)


def test_more_calls_than_allowed_in_a_turn_are_not_carried_out() -> None:
    given = answers(shouting(lambda word: Result(word), calls=2), *[shout(word) for word in "abc"])
    assert [one.text for one in given] == ["a", "b", "Not carried out: at most 2 calls in one turn."]
    assert given[2].error == ToolError.LIMIT


def test_long_results_are_cut_and_absurd_ones_refused() -> None:
    by = shouting(lambda word: Result("x" * int(word)), output_tokens=10)
    long, absurd = answers(by, shout("5000"), shout("10000000"))
    assert long == EnvironmentAnswer("x" * 160, seconds=long.seconds)
    assert absurd.error == ToolError.OUTPUT
    assert absurd.text == "shout returned 10,000,000 characters, which is too many."


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), "much", [1]])
def test_a_reward_that_is_no_number_breaks_the_episode(reward: Any) -> None:
    (given,) = answers(shouting(lambda word: Result(word, reward=reward)), shout())
    assert (given.reward, given.failed) == (None, True)


def test_what_is_no_result_is_an_error() -> None:
    (given,) = answers(shouting(lambda word: word), shout())
    assert (given.error, given.failed) == (ToolError.RAISED, False)


def test_a_game_answers_the_text_and_may_end_at_once() -> None:
    by = executor(lambda name: Scripted(name, says=lambda text: Result(text, reward=1, done=True)), EntryKind.GAME)
    (given,) = answers(by, text="Rook to a4")
    assert given == EnvironmentAnswer("Rook to a4", seconds=given.seconds, reward=1.0, done=True)


@pytest.mark.parametrize("why", ["raises", "blocks"])
def test_a_game_without_an_answer_has_failed(why: str) -> None:
    def make(name: str) -> Scripted:
        session = Scripted(name)
        session.says = lambda text: 1 / 0 if why == "raises" else session.closed.wait(60)
        return session

    (given,) = answers(executor(make, EntryKind.GAME, call_s=0.1), text="a")
    assert given.failed
    assert given.error == (ToolError.RAISED if why == "raises" else ToolError.TIMEOUT)


def test_a_server_gets_its_calls_one_after_another_and_none_after_its_end() -> None:
    heard: list[str] = []

    def does(word: str) -> Result:
        heard.append(word)
        return Result(word, done=word == "b")

    by = executor(lambda name: Scripted(name, does=does), EntryKind.SERVER)
    given = answers(by, shout("a"), shout("b"), shout("c"))
    assert heard[:2] == ["a", "b"]
    assert [(one.text, one.done) for one in given] == [
        ("a", False),
        ("b", True),
        ("The episode is over.", False),
    ]


def test_an_environment_with_other_tools_than_at_the_start_breaks_its_episode() -> None:
    made: list[Scripted] = []

    def make(name: str) -> Scripted:
        made.append(Scripted(name, names=["shout"] if not made else ["whisper"]))
        return made[-1]

    by = executor(make, EntryKind.SERVER)
    (played,) = by.begin([{}], [0])
    assert played.problem == "shout: its tools are not the same as at the start of the run."
    (given,) = by.carry_out([Move(played, [shout()])])
    assert (given[0].error, given[0].failed) == (ToolError.UNAVAILABLE, True)
    assert all(one.closed.wait(10) for one in made)


def test_a_reset_tells_what_begins_the_episode_and_gets_the_row_and_the_seed() -> None:
    by = executor(lambda name: Scripted(name, starts=lambda row, seed: f"{row['row']} {seed}"), EntryKind.GAME)
    assert [one.opening for one in by.begin([{"row": 1}, {"row": 2}], [7, 8])] == ["1 7", "2 8"]


def test_a_reset_that_raises_breaks_a_game_and_takes_a_tool_away() -> None:
    def starts(row: Any, seed: int) -> str:
        raise OSError("no board")

    game = executor(lambda name: Scripted(name, starts=starts), EntryKind.GAME)
    assert game.begin([{}], [0])[0].problem == "shout: it can't be opened: OSError: no board"
    (given,) = answers(executor(lambda name: Scripted(name, starts=starts)), shout())
    assert (given.error, given.failed) == (ToolError.UNAVAILABLE, False)


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(Unusable, match="Two tools are called 'same'"):
        executor(lambda name: Scripted(name, names=["same"]), names=("a", "b"))


def test_two_parts_to_play_in_are_refused() -> None:
    with pytest.raises(Unusable, match="Only one part can be a game or a server"):
        executor(Scripted, EntryKind.GAME, names=("a", "b"))


def test_closing_closes_every_session() -> None:
    made: list[Scripted] = []
    by = executor(lambda name: made.append(Scripted(name)) or made[-1])  # type: ignore[func-returns-value]
    by.close(by.begin([{}] * 3, [0] * 3))
    assert len(made) == 4
    assert all(one.closed.is_set() for one in made)
