"""Which schema a file follows is told from its columns and first rows, with a sentence why."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.datasets.reading.mapping import ColumnMapping, canonical, problems
from controlplane.datasets.reading.recognising import Recognised, recognise
from controlplane.datasets.reading.transforms import THINK_PROMPT

PRIME = "Write a function to check if a number is prime"
CASES: list[tuple[str, dict[str, Any], str, dict[str, Any]]] = [
    (
        "instruction and response",
        {"instruction": PRIME, "response": "def is_prime(n): ..."},
        "instruction_response",
        {"prompt": "instruction", "answer": "response", "transform": "instruction_response"},
    ),
    ("input and output", {"input": PRIME, "output": "def f(): ..."}, "input_output", {"prompt": "input"}),
    (
        "instruction, input and output",
        {"instruction": "Sort", "input": "3 1", "output": "1 3"},
        "instruction_output",
        {"prompt": "instruction", "input": "input", "answer": "output"},
    ),
    ("prompt and answer", {"prompt": "1+1", "answer": "2"}, "prompt_answer", {"prompt": "prompt", "answer": "answer"}),
    (
        "prompt, answer, instruction and input",
        {"prompt": "p", "answer": "a", "instruction": "i", "input": "x"},
        "instruction_answer",
        {"prompt": "instruction", "answer": "answer", "input": "input"},
    ),
    (
        "question and answer",
        {"question": "1+1?", "answer": "2"},
        "question_answer",
        {"prompt": "question", "answer": "answer", "transform": "columns"},
    ),
    (
        "GSM8K",
        {"question": "1+1?", "answer": "One and one.\n#### 2"},
        "gsm8k",
        {"prompt": "question", "answer": "answer", "transform": "gsm8k", "answer_after": "####"},
    ),
    (
        "problem and solution with a difficulty",
        {"problem": "Find the maximum", "solution": "def find_max(l): ...", "difficulty": "easy"},
        "problem_solution",
        {"prompt": "problem", "answer": "solution", "difficulty": "difficulty"},
    ),
    (
        "a final answer beside the solution",
        {"problem": "1+1", "solution": "It is 2", "answer": "2", "level": "Level 1"},
        "problem_solution",
        {"answer": "answer", "difficulty": "level"},
    ),
    (
        "chat messages",
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
        "messages",
        {"prompt": "messages", "messages": True, "answer": ""},
    ),
    (
        "conversations by from and value",
        {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]},
        "messages",
        {"prompt": "conversations", "messages": True},
    ),
    (
        "messages in the prompt's column",
        {"prompt": [{"role": "user", "content": "a"}], "answer": "1"},
        "messages",
        {"prompt": "prompt", "messages": True, "answer": "answer"},
    ),
    (
        "multi-turn",
        {"instruction": "i", "response": "r", "follow_up": "f", "follow_up_response": "fr"},
        "multi_turn",
        {"follow_up": "follow_up", "follow_up_response": "follow_up_response"},
    ),
    (
        "code with tests",
        {"instruction": "i", "response": "def f(): ...", "test_cases": ["assert f() is None"]},
        "code_with_tests",
        {"test_cases": "test_cases", "transform": "instruction_response_tests"},
    ),
    (
        "difficulty and tags",
        {"instruction": "i", "response": "r", "difficulty": "medium", "tags": ["search"]},
        "instruction_response",
        {"difficulty": "difficulty", "tags": "tags"},
    ),
    (
        "think tags",
        {"prompt": "1+1", "response": "<think>1+1</think><answer>2</answer>"},
        "think",
        {"transform": "think", "system_prompt": THINK_PROMPT},
    ),
    (
        "think tags in a chat",
        {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>x</think>b"}]},
        "think",
        {"transform": "think", "messages": True, "answer": ""},
    ),
    ("prompts alone", {"text": "Tell me a story", "id": 1}, "text", {"prompt": "text", "answer": ""}),
    ("nothing known", {"id": 4, "Frage": "Wie viel?"}, "unknown", {"prompt": "Frage"}),
    ("capitals", {"Question": "1+1?", "ANSWER": "2"}, "question_answer", {"prompt": "Question", "answer": "ANSWER"}),
]


def recognised(*rows: dict[str, Any]) -> Recognised:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return recognise(rows, [{"name": name, "filled": len(rows), "types": {}} for name in columns])


@pytest.mark.parametrize(("row", "schema", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_schema_is_recognised_and_its_proposal_works(
    row: dict[str, Any], schema: str, wanted: dict[str, Any]
) -> None:
    found = recognised(row, row)
    assert found.schema == schema
    mapping = found.mapping.as_dict()
    assert {name: mapping[name] for name in wanted} == wanted
    assert list(problems(found.mapping, list(row))) == []
    assert canonical(row, found.mapping, 0)["prompt"]
    assert found.why.endswith(".")
    assert found.title


def test_a_marker_in_some_answers_only_is_no_gsm8k() -> None:
    found = recognised({"question": "a", "answer": "x #### 1"}, {"question": "b", "answer": "2"})
    assert found.mapping.transform == "columns"


def test_tests_that_some_rows_lack_are_not_demanded_of_all() -> None:
    row = {"instruction": "i", "response": "r"}
    found = recognised({**row, "test_cases": ["assert f"]}, {**row, "test_cases": "assert g"})
    assert (found.mapping.test_cases, found.mapping.transform) == ("test_cases", "instruction_response")


def test_a_file_without_rows_is_not_recognised() -> None:
    found = recognise([], [])
    assert (found.schema, found.mapping) == ("unknown", ColumnMapping())


def test_a_proposal_can_be_sent_as_json() -> None:
    said = recognised({"question": "a", "answer": "#### 1"}).as_dict()
    assert said["mapping"]["prompt"] == "question"
    assert set(said) == {"schema", "title", "why", "mapping"}
