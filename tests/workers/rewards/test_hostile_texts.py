"""Completions that a model under optimization would find: whatever a pattern or a parser is slow on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.workers.rewards.scoring import PURE
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion
from workers.rewards.scoring import score

HOSTILE = {
    "digits": "1" * 1_000_000,
    "groups": "1,111" + ",111" * 250_000 + "1",
    "commas": "1," * 500_000,
    "signs": "$-" * 500_000,
    "open tags": "<think><answer>" * 60_000,
    "closing tags": "</answer></think>" * 60_000,
    "fences": "```" * 333_333,
    "boxes": "\\boxed{" * 140_000,
    "markers": "####" * 250_000,
    "white space": " \n" * 500_000,
    "lone surrogates": "\ud800" * 1_000_000,
    "NUL": "```\nx = 1\0\n```" * 60_000,
    "surrogate code": "```\nx = '\udcff'\n```",
    "long line": "```\n" + "1+" * 20_000 + "1\n```",
    "huge number in code": "```\n" + "9" * 40_000 + "\n```",
    "deep brackets": "```\n" + "[" * 20_000 + "\n```",
    "deep minus": "```\nx=" + "-" * 1_900 + "1\n```",
    "deep not": "```\nx=" + "not " * 10_000 + "1\n```",
    "deep lambda": "```\nx=" + "lambda:" * 7_000 + "1\n```",
    "deep if": "```\n" + "".join(" " * i + "if a:\n" for i in range(250)) + " " * 250 + "pass\n```",
    "answers": "answer " * 140_000,
    "answer is": "answer is the option ((((((" * 30_000,
    "quotes": '"' * 1_000_000,
    "open braces": '{"a":' * 200_000,
    "open lists": "[" * 1_000_000,
    "elements": "<a>" * 300_000,
    "entities": "&lol;" * 200_000,
    "calls": "<tool_call>" * 90_000 + "</tool_call>" * 90_000,
    "closed calls": '<tool_call>{"name": "a"}</tool_call>' * 30_000,
    "results": "<information>1889</information>" * 30_000,
    "one word": "so " * 330_000,
    "many words": " ".join(map(str, range(150_000))),
    "scripts": "".join(map(chr, range(32, 0x3000))) * 20,
    "combining": "a" + "\u0301" * 300_000,
    "bytes that are no characters": "\udcff\ufdd0\uffff\x00" * 100_000,
}
LONGEST_S = 20
"""Processor time that one text may cost."""
ANSWERS = {"multiple_choice": "B"}
INTERRUPTED = {("regex_match", "open tags")}
"""A pattern that is fine on pages and slow on megabytes is interrupted: a failure, which counts for nothing."""


def test_hostile_texts_get_a_score_in_range(subtests: pytest.Subtests) -> None:
    for key in PURE:
        with subtests.test(key=key):
            for name in HOSTILE:
                begun = time.process_time()
                gets_a_score_in_range(key, name)
                assert time.process_time() - begun < LONGEST_S, name


def gets_a_score_in_range(key: str, name: str) -> None:
    low, high = LIBRARY[key].range
    completion = Completion(HOSTILE[name], tokens=len(HOSTILE[name]) // 4)
    given = score(LIBRARY[key], [completion], [{"answer": ANSWERS.get(key, "#### 7")}], {})
    if (key, name) in INTERRUPTED:
        assert [failure.kind for failure in given.failures] == ["timeout"]
        assert given.values == [None]
        return
    assert given.failures == [], name
    assert given.values[0] is not None, name
    assert low <= given.values[0] <= (float("inf") if high is None else high), name


@pytest.mark.parametrize(
    ("key", "before", "after"),
    [
        ("json_valid", "<answer>", "</answer>"),
        ("token_f1", "<answer>", "</answer>"),
        ("xml_structure", "<answer>", "</answer>"),
        ("tool_call_valid", '<tool_call>{"name": "', '", "arguments": {}}</tool_call>'),
        ("answer_in_results", "<result>", "</result>"),
    ],
)
def test_hostile_texts_between_tags_are_no_crash(key: str, before: str, after: str) -> None:
    for name, text in HOSTILE.items():
        begun = time.process_time()
        given = score(LIBRARY[key], [before + text + after], [{"answer": "7"}], {})
        assert given.failures == [], name
        assert time.process_time() - begun < LONGEST_S, name


def test_a_hostile_answer_column_is_no_crash(subtests: pytest.Subtests) -> None:
    for key in PURE:
        with subtests.test(key=key):
            answers: tuple[Any, ...] = (
                *HOSTILE.values(),
                7,
                7.5,
                ["a"],
                {"a": 1},
                True,
                [],
                [None],
                [HOSTILE["digits"]],
            )
            for answer in answers:
                assert score(LIBRARY[key], [Completion("7", tokens=1)], [{"answer": answer}], {}).failures == []


TURNS: list[Any] = [
    {"role": "assistant"},
    {"role": "assistant", "content": None, "tool_calls": None},
    {"role": "assistant", "content": 7, "tool_calls": "search"},
    {"role": "assistant", "content": [{"type": "text", "text": "7"}, 7], "tool_calls": [None, 7, {}, {"function": 7}]},
    {"role": "tool", "content": {"a": 1}},
    {"role": 7},
    {},
]


@pytest.mark.parametrize("key", ["tool_call_valid", "turn_count", "answer_in_results"])
def test_turns_of_odd_shapes_are_no_crash(key: str) -> None:
    for turns in ([turn] for turn in TURNS):
        assert score(LIBRARY[key], [Completion("7", tuple(turns))], [{"answer": "7"}], {}).failures == []
