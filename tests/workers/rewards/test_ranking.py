"""A judge that ranks: whole groups in one request each, against a real server."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.workers.rewards.judge_server import JudgeServer
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Scores
from workers.rewards.scoring import score
from workers.rewards.tools import Endpoint, Tools

RANKS = LIBRARY["judge_ranking"]
KEY = "sk-very-secret-key-0123456789"


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


def ranked(server: JudgeServer, *texts: str, rows: Any = None, says: str = "") -> Scores:
    """`says`: what the server answers; by the number in which it was shown each text."""
    criterion = f"To be judged: [says={says}]\n{{prompt}}" if says else "{prompt} {answer}"
    given = {"endpoint": "JUDGE", "model": "a-model", "timeout_s": 5.0, "batch_s": 20.0, "criterion": criterion}
    assert RANKS.check(given) == []
    tools = Tools(open_sandbox=lambda _: pytest.fail("no code"), endpoint=lambda name: Endpoint(server.address, KEY))
    return score(RANKS, texts, rows or [{"prompt": "Say it."}] * len(texts), given, tools)


def shown(server: JudgeServer, *texts: str) -> list[int]:
    """In which place the judge read each text."""
    [(_, body), *_] = server.asked
    at = {
        text: int(number)
        for number, text in re.findall(r"\[begin answer (\d+) \w+\]\n(.*)\n", str(body["messages"][1]["content"]))
    }
    return [at[text] for text in texts]


@pytest.mark.parametrize(
    ("says", "scores"),
    [
        ("Ranking: 2 > 1 > 3", [0.5, 1.0, 0.0]),
        ("**Ranking:** 3 = 1 > 2", [0.75, 0.0, 0.75]),
        ("So be it.\\n1 = 2 = 3", [0.5, 0.5, 0.5]),
        ("3, 2, 1.", [0.0, 0.5, 1.0]),
    ],
)
def test_places_become_scores_and_equals_share_theirs(says: str, scores: list[float], server: JudgeServer) -> None:
    given = ranked(server, "one", "two", "three", says=says)
    assert (given.failures, len(server.asked)) == ([], 1)
    assert given.values == [pytest.approx(scores[place - 1]) for place in shown(server, "one", "two", "three")]
    assert "completion 1" in given.notes[0]


@pytest.mark.parametrize(
    ("says", "words"),
    [
        ("I like the second.", "Its last line is not a ranking"),
        ("Ranking: 1 > 2", "doesn't name each of the 3 answers once"),
        ("Ranking: 1 > 2 > 2 > 3", "doesn't name each of the 3 answers once"),
        ("Ranking: 0 > 1 > 2", "doesn't name each of the 3 answers once"),
        ("Ranking: 1 > 2 > 3 > 4", "doesn't name each of the 3 answers once"),
    ],
)
def test_a_bad_answer_fails_for_the_whole_group(says: str, words: str, server: JudgeServer) -> None:
    given = ranked(server, "one", "two", "three", says=says)
    assert given.values == [None] * 3
    assert [(one.index, one.kind) for one in given.failures] == [(place, "not_a_number") for place in range(3)]
    assert words in given.failures[0].message


def test_each_group_is_one_request_and_what_fails_is_only_its_own(server: JudgeServer) -> None:
    rows = [{"prompt": "a", "answer": "judged: [says=1 > 2]"}] * 2 + [{"prompt": "b", "answer": "judged: [500]"}] * 2
    given = ranked(server, "one", "two", "three", "four", rows=rows)
    assert sorted(value for value in given.values if value is not None) == [0.0, 1.0]
    assert [(one.index, one.kind) for one in given.failures] == [(2, "http"), (3, "http")]


def test_one_alone_and_a_row_without_what_is_asked_for_have_no_score(server: JudgeServer) -> None:
    assert ranked(server, "one", says="1").values == [None]
    given = ranked(server, "one", "two", rows=[{"prompt": "a"}] * 2)
    assert (given.values, given.failures, server.asked) == ([None, None], [], [])
