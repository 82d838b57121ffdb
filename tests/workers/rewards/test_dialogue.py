"""Tool calls, turns and results of completions of several messages, and of calls that stayed text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.workers.rewards.scoring import one
from workers.rewards.library import LIBRARY
from workers.rewards.reward import Completion
from workers.rewards.scoring import score

SEARCH = {
    "type": "function",
    "function": {
        "name": "search",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    },
}
TOOLS = {"tools": json.dumps([SEARCH, {"name": "now"}])}


def written(*calls: str) -> Completion:
    return Completion(" so ".join(f"<tool_call>{call}</tool_call>" for call in calls))


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


def result(text: str) -> dict[str, Any]:
    return {"role": "tool", "name": "search", "content": text}


GOOD = '{"name": "search", "arguments": {"query": "Eiffel"}}'


@pytest.mark.parametrize(
    ("completion", "params", "expected"),
    [
        (written(GOOD), {}, 1.0),
        (written(GOOD), TOOLS, 1.0),
        (written(f"\n{GOOD}\n"), TOOLS, 1.0),
        (written('{"name": "now"}'), TOOLS, 1.0),
        (written('{"name": "find", "arguments": {}}'), TOOLS, 0.0),
        (written('{"name": "find", "arguments": {}}'), {}, 1.0),
        (written('{"name": "search", "arguments": {}}'), TOOLS, 0.0),
        (written('{"name": "search", "arguments": {"query": 7}}'), TOOLS, 0.0),
        (written('{"name": "search", "arguments": {"query": "a", "page": 2}}'), TOOLS, 0.0),
        (written('{"name": "search", "arguments": "{\\"query\\": \\"a\\"}"}'), TOOLS, 1.0),
        (written('{"name": "search", "arguments": [1]}'), {}, 0.0),
        (written('{"name": "", "arguments": {}}'), {}, 0.0),
        (written("search(Eiffel)"), {}, 0.0),
        (written(GOOD, "search(Eiffel)"), {}, 0.0),
        (written(GOOD, "search(Eiffel)"), {"partial": True}, 0.5),
        (Completion(f"<tool_call>{GOOD}"), {}, 0.0),
        (Completion(f"</tool_call><tool_call>{GOOD}</tool_call>"), {}, 0.0),
        (Completion(f"<call>{GOOD}</call>"), {"tag": "call"}, 1.0),
        (Completion("no call"), {}, 0.0),
        (Completion("no call"), {"needs_call": False}, None),
        (Completion("7", (call("search", {"query": "a"}), result("b"), {"role": "assistant"})), TOOLS, 1.0),
        (Completion("7", (call("search", '{"query": "a"}'),)), TOOLS, 1.0),
        (Completion("7", (call("search", '{"query": '),)), TOOLS, 0.0),
        (Completion("7", (call("now", {}), {"role": "assistant", "content": "<tool_call>now"})), {}, 0.0),
        (Completion("7", (call("now", {}), result("<tool_call>not the model's</tool_call>"))), {}, 1.0),
    ],
)  # fmt: skip
def test_a_call_that_can_be_carried_out_scores(
    completion: Completion, params: dict[str, Any], expected: float | None
) -> None:
    assert one("tool_call_valid", completion, None, params) == expected


@pytest.mark.parametrize(
    ("tools", "complaint"),
    [
        ("{", "tools: is not JSON: "),
        ("7", "tools: must be a list of "),
        ('[{"parameters": {}}]', "tools: must be a list of "),
        ('[{"name": "a", "parameters": {"type": "strin"}}]', "tools: a's parameters: is not a valid JSON Schema: at "),
        ('[{"name": "a", "parameters": {"$ref": "http://a/b"}}]', "tools: a's parameters: refers to another document"),
    ],
)
def test_tools_that_are_none_are_refused(tools: str, complaint: str) -> None:
    [said] = LIBRARY["tool_call_valid"].check({"tools": tools})
    assert said.startswith(complaint)


@pytest.mark.parametrize(
    ("turns", "params", "expected"),
    [
        (0, {}, 1.0),
        (4, {}, 1.0),
        (6, {}, 0.5),
        (9, {}, 0.0),
        (1, {"minimum": 2}, 0.5),
        (2, {"counted": "calls", "minimum": 4}, 0.5),
        (0, {"counted": "calls"}, 0.0),
        (0, {"counted": "calls", "minimum": 0}, 1.0),
    ],
)
def test_turns_are_counted(turns: int, params: dict[str, Any], expected: float) -> None:
    held = tuple(turn for _ in range(turns) for turn in (call("now", {}), result("noon")))
    assert one("turn_count", Completion("noon", held), None, params) == expected


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Stephen Sauvestre", 1.0),
        ("stephen sauvestre.", 1.0),
        ("The Stephen Sauvestre", 1.0),
        (["Gustave Eiffel", "Sauvestre"], 1.0),
        ("because\n#### Sauvestre", 1.0),
        ("Stephen", 1.0),
        ("Steph", 0.0),
        ("Sauvestre Stephen", 0.0),
        ("Gustave Eiffel", 0.0),
        ("It was me", 0.0),
        (None, None),
        ("the", None),
    ],
)
def test_the_answer_is_looked_for_in_what_the_tools_returned(answer: Any, expected: float | None) -> None:
    turns = (call("search", {"query": "Gustave Eiffel"}), result("By Stephen Sauvestre, in 1884."))
    spoken = {"role": "assistant", "content": "It was me, Gustave Eiffel."}
    given = score(LIBRARY["answer_in_results"], [Completion("", (*turns, spoken))], [{"answer": answer}], {})
    assert given.values == [expected]


@pytest.mark.parametrize("reward", [10**400, -(10**400), float("nan"), float("inf"), True, "1", None])
def test_a_result_without_a_finite_reward_counts_as_none(reward: Any) -> None:
    results = ({**result("a"), "reward": reward}, {**result("b"), "reward": 0.5})
    assert one("environment_reward", Completion("", results)) == 0.5
