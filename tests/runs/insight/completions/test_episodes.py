"""Episodes on the completions tab: by turn, whatever the messages are like, and filtered by turns, tools and errors."""

from __future__ import annotations

from typing import Any

import pytest
from pytest_django import Settings

from runs.engine.models import Attempt
from runs.engine.records import SampleRow
from runs.insight.completions import episodes, groups
from runs.insight.completions.groups import completions, without_texts
from tests.runs.builders import an_attempt
from tests.runs.insight.completions.test_completions import completion, order, page, send

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def quick_passwords(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def attempt() -> Attempt:
    return an_attempt()


def a_call(name: str = "search", **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def model(text: str = "", *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "tool_calls": list(calls), "tokens": 30, **more}


def result(text: str, name: str = "search", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "name": name, "content": text, "tokens": 10, "seconds": 0.25, "error": "", **more}


SEARCHES = [
    model("<think>Who was it?</think>I look it up.", a_call(query="Amundsen"), reward=0.5, advantage=-0.75),
    result("no such tool named search", error="timeout"),
    model("Again.", a_call(query="South Pole"), a_call("calculator", expression="2+2"), reward=1.0, advantage=1.25),
    result("4", "calculator"),
    result("Roald Amundsen reached it in 1911."),
    model("It was Amundsen."),
]


def test_a_turn_has_its_words_calls_results_and_credit(attempt: Attempt) -> None:
    row = send(attempt, 3, completion("It was Amundsen.", turns=SEARCHES, end="done"), row=8)
    text = page(attempt, f"completions/{row.pk}/")
    for shown in ("Turn 3", "South Pole", "timed out", "0.25", "no loss", "−0.75", "+1.3", "ended by the environment"):
        assert shown in text, shown


def test_a_result_stands_below_its_own_call() -> None:
    episode = episodes.read(SEARCHES)
    assert episode is not None
    names = [(part.turn.role, part.turn.name) for part in episode.turns[1].parts]
    pairs = [("call", "search"), ("tool", "search"), ("call", "calculator"), ("tool", "calculator")]
    assert names == [("assistant", ""), *pairs]


def test_an_episode_adds_up() -> None:
    episode = episodes.read(SEARCHES)
    assert episode is not None
    assert (episode.count, episode.calls, episode.failures, episode.seconds) == (3, 3, 1, 0.75)
    assert episode.read_share == pytest.approx(30 / 120)


@pytest.mark.parametrize(
    "messages",
    [
        [model("a"), "a bare word", {"role": "tool"}, {"content": None}, 7],
        [{"role": "user", "content": "first word"}, model("b", "not a call")],  # type: ignore[arg-type]
        [model("c", reward="high", advantage=[1], tokens=-3), result("r", seconds=-1, error=7)],
        [{"role": "assistant"}, {"role": "assistant", "content": [{"type": "text", "text": "one piece"}]}],
        [model("d", {"function": {"name": "f", "arguments": '{"x": [1, {"y": 2}]}'}}), result("e", "other")],
    ],
)
def test_odd_messages_are_shown_and_break_nothing(attempt: Attempt, messages: list[Any]) -> None:
    row = send(attempt, 3, completion("x", turns=messages))
    text = page(attempt, f"completions/{row.pk}/")
    for words in ("a bare word", "first word", "not a call", "one piece"):
        assert (words in text) is (words in str(messages))
    assert "x" in page(attempt)


def test_a_long_result_and_thinking_fold(attempt: Attempt) -> None:
    row = send(attempt, 3, completion("x", turns=[model("<think>hm</think>", a_call()), result("line\n" * 50)]))
    assert page(attempt, f"completions/{row.pk}/").count('<details class="part-fold">') == 2


def a_step(attempt: Attempt) -> SampleRow:
    one = [model("one")]
    two = [model("two", a_call(query="x")), result("y", error="raised"), model("end-two")]
    return send(
        attempt,
        3,
        completion("end-none"),
        completion("end-one", turns=[*one, {"role": "user", "content": "go on"}]),
        completion("end-two", turns=two),
        completion("end-three", turns=[*SEARCHES[:-1], model("end-three")], end="turns"),
    )


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"tool": "calculator"}, ["end-three"]),
        ({"tool": "search"}, ["end-two", "end-three"]),
        ({"error": "any"}, ["end-two", "end-three"]),
        ({"error": "raised"}, ["end-two"]),
        ({"turns_from": "2"}, ["end-two", "end-three"]),
        ({"turns_from": "2", "turns_to": "2"}, ["end-two"]),
        ({"turns_to": "1"}, ["end-none", "end-one"]),
        ({"end": "turns"}, ["end-three"]),
        ({"q": "south pole"}, ["end-three"]),
        ({"error": "odd", "turns_from": "x"}, ["end-none", "end-one", "end-two", "end-three"]),
        ({"sort": "-turn_count", "turns_from": "2"}, ["end-three", "end-two"]),
    ],
)
def test_episodes_are_found_by_tool_error_and_turns(attempt: Attempt, asked: dict[str, str], found: list[str]) -> None:
    row = a_step(attempt)
    text = page(attempt, **asked)
    links = [f'#completion-{n}"' for n in (1, 2, 3, 4)]
    names = dict(zip(links, ("end-none", "end-one", "end-two", "end-three"), strict=True))
    assert row.pk
    assert [names[link] for link in order(text, *links)] == found


def test_turns_stay_known_without_texts(attempt: Attempt) -> None:
    row = a_step(attempt)
    row.data = without_texts(row.data)
    row.save()
    assert [one.turn_count for one in completions(row.data)] == [None, 1, 2, 3]
    assert '#completion-4"' in page(attempt, turns_from="3")
    assert groups.FIGURES in without_texts(row.data)


def a_visit(attempt: Attempt, step: int, *calls: dict[str, Any], reward: float) -> SampleRow:
    said = [model("", *calls, reward=reward, advantage=reward - 0.5), model("So it is.")]
    return send(attempt, step, completion("So it is.", reward, turns=said), row=5)


def test_two_visits_of_a_prompt_stand_beside_each_other_by_turn(attempt: Attempt) -> None:
    a_visit(attempt, 1, reward=0.0)
    a_visit(attempt, 9, a_call(query="pole"), reward=0.5)
    last = a_visit(attempt, 20, a_call(query="south pole"), reward=1.0)
    text = page(attempt, "prompts/5/")
    assert "calls now" in text
    assert "search 1" in text
    assert "other arguments" in page(attempt, "prompts/5/", before=f"{last.pk - 1}.1")
    assert "calls now" in page(attempt, "prompts/5/", before="9.x", after="0.1")


def test_a_prompt_without_episodes_has_nothing_by_turn(attempt: Attempt) -> None:
    send(attempt, 1, completion("a"), row=5)
    send(attempt, 2, completion("b"), row=5)
    assert "By turn" not in page(attempt, "prompts/5/")
