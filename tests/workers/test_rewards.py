"""The reward library: what each reward says about texts good, bad and hostile."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from workers import rewards
from workers.rewards import LIBRARY

THOUGHT = "<think>3 + 4</think>7"
FENCED = "Here:\n```python\n{}\n```\ndone"

SCORES = [
    ("think_tags", THOUGHT, {}, 1.0),
    ("think_tags", "  \n" + THOUGHT, {}, 1.0),
    ("think_tags", "well <think>a</think>b", {}, 0.0),
    ("think_tags", "<think></think>7", {}, 0.0),
    ("think_tags", "<think>a</think>", {}, 0.0),
    ("think_tags", "<think>a</think>", {"needs_text_after": False}, 1.0),
    ("think_tags", "<think>a</think>b<think>c</think>d", {}, 0.0),
    ("think_tags", "<think>never closed", {}, 0.0),
    ("think_tags", "<think>never closed", {"partial": True}, 0.25),
    ("think_tags", "3 + 4</think>7", {"opened_by_prompt": True}, 1.0),
    ("think_tags", "<plan>a</plan>b", {"tag": "plan"}, 1.0),
    ("think_tags", "", {}, 0.0),
    ("answer_tag", "so <answer>7</answer>", {}, 1.0),
    ("answer_tag", "so <answer> </answer>", {}, 0.0),
    ("answer_tag", "<answer>7</answer><answer>8</answer>", {}, 0.0),
    ("answer_tag", "</answer>7<answer>", {}, 0.0),
    ("answer_tag", "<answer>7</answer> bye", {"at_end": True}, 0.0),
    ("answer_tag", "<answer>7</answer> \n", {"at_end": True}, 1.0),
    ("answer_tag", "<answer>7", {"partial": True}, 1 / 3),
    ("unique_chars", "abca", {}, 3.0),
    ("unique_chars", "aA a", {"ignore_case": True, "ignore_spaces": True}, 1.0),
    ("unique_chars", "", {}, 0.0),
    ("unique_chars_normalised", "abca", {}, 0.75),
    ("unique_chars_normalised", "   ", {"ignore_spaces": True}, 0.0),
    ("python_syntax", FENCED.format("x = 1"), {}, 1.0),
    ("python_syntax", FENCED.format("x ="), {}, 0.0),
    ("python_syntax", FENCED.format("x ="), {"wrong_score": -1.0}, -1.0),
    ("python_syntax", FENCED.format("# only a comment"), {}, 0.0),
    ("python_syntax", "```\nx = 1\n```", {}, 1.0),
    ("python_syntax", "```x = 1```", {}, 1.0),
    ("python_syntax", "```py\nx =\n``` then ```py\nx = 1\n```", {}, 1.0),
    ("python_syntax", "```py\nx = 1\n``` then ```py\nx =", {}, 1.0),
    ("python_syntax", "x = 1", {}, 0.0),
    ("python_syntax", "x = 1", {"needs_block": False}, 1.0),
    ("python_syntax", FENCED.format("'\\d'"), {}, 1.0),
    ("length", "a" * 200, {}, 1.0),
    ("length", "a" * 300, {}, 0.5),
    ("length", "a" * 500, {}, 0.0),
    ("length", "", {}, 1.0),
    ("length", "a", {"minimum": 4}, 0.25),
    ("length", "a b c", {"unit": "words", "target": 2, "maximum": 4}, 0.5),
]

MATCHES = [
    ("exact_match", " Paris\n", "paris", {}, 1.0),
    ("exact_match", "Paris", "paris", {"ignore_case": False}, 0.0),
    ("exact_match", "Paris.", "Paris", {"ignore_punctuation": True}, 1.0),
    ("exact_match", "It is <answer>New  York</answer>.", "New York", {"source": "answer tag"}, 1.0),
    ("exact_match", "Paris", "Paris", {"source": "answer tag"}, 0.0),
    ("exact_match", "so\n#### Paris\nbye", "because\n#### Paris", {"source": "after marker"}, 1.0),
    ("exact_match", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", {"source": "boxed"}, 1.0),
    ("exact_match", "Paris", "", {}, None),
    ("exact_match", "Paris", None, {}, None),
    ("numeric_match", "16 - 3 - 4 = 9, so 9 * 2 = $18.", "She makes 9 * 2 = 18.\n#### 18", {}, 1.0),
    ("numeric_match", "It is 1,234.50 in all", "1234.5", {}, 1.0),
    ("numeric_match", "$1,234", "1234", {}, 1.0),
    ("numeric_match", "-$5", "-5", {}, 1.0),
    ("numeric_match", "\u22125", "-5", {}, 1.0),
    ("numeric_match", "10-3", "3", {}, 1.0),
    ("numeric_match", "50%", "50", {}, 1.0),
    ("numeric_match", "50 %", "0.5", {}, 1.0),
    ("numeric_match", "0.5", "50%", {}, 1.0),
    ("numeric_match", "50", "0.5", {}, 0.0),
    ("numeric_match", "<answer>3/4</answer>", "0.75", {}, 1.0),
    ("numeric_match", "<answer>3/0</answer>", "0.75", {}, 0.0),
    ("numeric_match", "<answer>7</answer> not 8", "7", {}, 1.0),
    ("numeric_match", "<answer>seven</answer> or 7", "7", {}, 1.0),
    ("numeric_match", "<answer>seven</answer> or 7", "7", {"source": "answer tag"}, 0.0),
    ("numeric_match", "<answer>7</answer> not 8", "7", {"source": "last number"}, 0.0),
    ("numeric_match", "#### 7\nand 8", "7", {}, 1.0),
    ("numeric_match", r"so \boxed{7}, out of 9", "7", {}, 1.0),
    ("numeric_match", "72.", "72", {}, 1.0),
    ("numeric_match", ".5", "0.5", {}, 1.0),
    ("numeric_match", "1.2e3", "1200", {}, 1.0),
    ("numeric_match", "3.14", "3.14159", {}, 0.0),
    ("numeric_match", "3.14", "3.14159", {"tolerance": 0.01}, 1.0),
    ("numeric_match", "99", "100", {"tolerance": 0.02, "relative": True}, 1.0),
    ("numeric_match", "12345678901234567891", "12345678901234567890", {}, 0.0),
    ("numeric_match", "9" * 5000, "9", {}, 0.0),
    ("numeric_match", "none", "7", {}, 0.0),
    ("numeric_match", "7", "no number", {}, None),
    ("numeric_match", "7", None, {}, None),
]

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
}


@pytest.mark.parametrize(("key", "completion", "params", "score"), SCORES)
def test_a_reward_scores_a_text(key: str, completion: str, params: dict, score: float) -> None:
    assert LIBRARY[key].check(params) == []
    assert LIBRARY[key].score(completion, {}, params) == pytest.approx(score)


@pytest.mark.parametrize(("key", "completion", "answer", "params", "score"), MATCHES)
def test_a_reward_compares_with_the_answer(key: str, completion: str, answer: str, params: dict, score: float) -> None:
    assert LIBRARY[key].check(params) == []
    assert LIBRARY[key].score(completion, {"answer": answer}, params) == score


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("key", LIBRARY)
def test_hostile_text_gets_a_score_in_range(key: str, name: str) -> None:
    low, high = LIBRARY[key].range
    score = LIBRARY[key].score(HOSTILE[name], {"answer": "#### 7"}, {})
    assert score is not None
    assert low <= score <= (float("inf") if high is None else high)


@pytest.mark.parametrize("key", LIBRARY)
def test_a_hostile_answer_column_is_no_crash(key: str) -> None:
    for answer in (*HOSTILE.values(), 7, 7.5, ["a"], {"a": 1}, True):
        LIBRARY[key].score("7", {"answer": answer}, {})


def test_a_batch_pairs_each_completion_with_its_row() -> None:
    rows = [{"answer": "1"}, {"answer": "2"}, {"answer": None}]
    assert LIBRARY["numeric_match"].score_batch(["1", "1", "1"], rows, {}) == [1.0, 0.0, None]
    with pytest.raises(ValueError):
        LIBRARY["numeric_match"].score_batch(["1"], rows, {})


@pytest.mark.parametrize("key", LIBRARY)
def test_a_reward_describes_itself_for_a_form(key: str) -> None:
    reward = LIBRARY[key]
    assert reward.key == key
    assert reward.title
    assert reward.help
    for entry in json.loads(json.dumps(reward.schema())):
        assert set(entry) == {"name", "type", "default", "help", "choices", "min", "max"}
        assert entry["type"] in {"bool", "int", "float", "str"}
        assert entry["help"].endswith(".")
    assert reward.check(reward.defaults()) == []


@pytest.mark.parametrize(
    ("key", "params", "complaint"),
    [
        ("length", {"goal": 3}, "goal: length has no such parameter"),
        ("length", {"target": "3"}, "target: must be a number, not '3'"),
        ("length", {"target": 1.5}, "target: must be a whole number, not 1.5"),
        ("length", {"target": True}, "target: must be a number, not True"),
        ("length", {"target": -1}, "target: must be at least 0"),
        ("length", {"target": 10**9}, "target: must be at most 1000000"),
        ("length", {"target": float("nan")}, "target: must be a finite number"),
        ("length", {"unit": "miles"}, "unit: must be one of characters, words"),
        ("length", {"target": 400, "maximum": 400}, "maximum: must be above target"),
        ("length", {"minimum": 300}, "minimum: must not be above target"),
        ("think_tags", {"partial": 1}, "partial: must be true or false, not 1"),
        ("think_tags", {"tag": "a>b"}, "tag: must be a name of letters, digits, - and _"),
        ("think_tags", {"tag": 3}, "tag: must be text, not 3"),
        ("exact_match", {"marker": "#" * 201}, "marker: must be at most 200 characters"),
    ],
)
def test_a_wrong_parameter_is_named(key: str, params: dict, complaint: str) -> None:
    assert LIBRARY[key].check(params) == [complaint]


def test_a_whole_float_is_taken_for_a_whole_number() -> None:
    assert LIBRARY["length"].check({"target": 3.0}) == []
    assert LIBRARY["length"].score("abcd", {}, {"target": 3.0, "maximum": 5}) == 0.5


def test_the_library_needs_nothing_but_the_standard_library() -> None:
    for path in Path(rewards.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.split(".")[0] in sys.stdlib_module_names or name.startswith("workers.rewards"), path
