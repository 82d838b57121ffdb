"""Which schema a file follows is told from its columns and first rows, with a sentence why."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical, problems
from controlplane.catalogue.datasets.reader.columns.proposing import Recognised
from controlplane.catalogue.datasets.reader.columns.recognising_columns import recognise
from controlplane.catalogue.datasets.reader.columns.transforms import THINK_PROMPT

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
        {"prompt": "What is 15% of 200?", "answer": "30", "instruction": "Calculate the percentage", "input": ""},
        "prompt_answer",
        {"prompt": "prompt", "answer": "answer", "input": "input", "template": "{instruction}\n\n{prompt}"},
    ),
    (
        "an instruction beside a problem",
        {"instruction": "Put the result in a box.", "problem": "1+1", "solution": "\\boxed{2}"},
        "problem_solution",
        {"prompt": "problem", "answer": "solution", "template": "{instruction}\n\n{prompt}"},
    ),
    (
        "the whole text of an Alpaca row in its prompt",
        {"instruction": "Sort", "input": "3 1", "output": "1 3", "prompt": "### Instruction: Sort\n3 1\n### 1 3"},
        "instruction_output",
        {"prompt": "instruction", "input": "input", "answer": "output", "template": ""},
    ),
    ("prompt and response", {"prompt": "1+1", "response": "2"}, "prompt_response", {"answer": "response"}),
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
    (
        "words in the names",
        {"ID": "7", "Question Text": "1+1 is?", "Expected Answer": "2", "Source,URL": "web", "Notes": "-"},
        "by_words",
        {"prompt": "Question Text", "answer": "Expected Answer"},
    ),
    (
        "words written together",
        {"promptId": "p-1", "userPrompt": "Add 1 and 1", "goldAnswers": "2", "answerType": "number"},
        "by_words",
        {"prompt": "userPrompt", "answer": "goldAnswers"},
    ),
    (
        "names with spaces and hyphens",
        {"Final-Answer": "2", "Problem ": "1+1", "Test Cases": ["assert f() == 2"]},
        "code_with_tests",
        {"prompt": "Problem ", "answer": "Final-Answer", "test_cases": "Test Cases"},
    ),
    (
        "HumanEval",
        {
            "task_id": "Own/0",
            "prompt": 'def add(a, b):\n    """The sum."""\n',
            "canonical_solution": "    return a + b\n",
            "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
            "entry_point": "add",
        },
        "humaneval",
        {"prompt": "prompt", "answer": "canonical_solution", "test_cases": "test", "transform": "humaneval"},
    ),
    (
        "the longest text of unknown names",
        {"nr": "12", "Thema": "Rechnen", "Aufgabe": "Wie viel ist eins und eins?"},
        "unknown",
        {"prompt": "Aufgabe", "answer": ""},
    ),
    ("short sums", {"sums to ask": "3-1", "n": 2}, "unknown", {"prompt": "sums to ask"}),
    ("capitals", {"Question": "1+1?", "ANSWER": "2"}, "question_answer", {"prompt": "Question", "answer": "ANSWER"}),
]


def recognised(*rows: dict[str, Any]) -> Recognised:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return recognise(rows, [{"name": name, "filled": len(rows), "types": {}} for name in columns])


def test_each_schema_is_recognised_and_its_proposal_works(subtests: pytest.Subtests) -> None:
    for row, schema, wanted in [case[1:] for case in CASES]:
        with subtests.test(row=row):
            found = recognised(row, row)
            assert found.schema == schema
            mapping = found.mapping.as_dict()
            assert {name: mapping[name] for name in wanted} == wanted
            assert list(problems(found.mapping, list(row))) == []
            assert canonical(row, found.mapping, 0)["prompt"]
            assert found.why.endswith(".")
            assert found.title


# As training scripts for arithmetic bring them: what to do, and the question itself.
BESIDE = [
    {"prompt": "What is 15% of 200?", "answer": "30", "instruction": "Calculate the percentage", "input": ""},
    {
        "prompt": "A store has 120 apples. They sell 3/4 of them. How many apples are left?",
        "answer": "30",
        "instruction": "Solve the word problem step by step",
        "input": "",
    },
]


def test_the_question_reaches_the_model_with_its_instruction_above_it() -> None:
    found = recognised(*BESIDE)
    made = [canonical(row, found.mapping, place) for place, row in enumerate(BESIDE)]
    assert made[0]["prompt"] == [{"role": "user", "content": "Calculate the percentage\n\nWhat is 15% of 200?"}]
    assert made[1]["prompt"][0]["content"].endswith("How many apples are left?")
    assert [row["answer"] for row in made] == ["30", "30"]
    assert "The template puts “instruction” above the prompt" in found.why


@pytest.mark.parametrize("instruction", [None, "", "What is 15% of 200?", ["Add", "divide"]])
def test_an_instruction_that_adds_nothing_is_no_part_of_the_prompt(instruction: Any) -> None:
    found = recognised(BESIDE[1], {**BESIDE[0], "instruction": instruction})
    assert (found.mapping.prompt, found.mapping.template) == ("prompt", "")


def with_shares(row: dict[str, Any], **shares: float) -> Recognised:
    return recognise([row] * 4, [{"name": name, "share": shares.get(name, 1.0)} for name in row])


@pytest.mark.parametrize(("share", "answer"), [(0.2, "solution"), (0.6, "solution"), (0.95, "answer")])
def test_a_filled_column_is_proposed_before_an_emptier_one_of_a_better_name(share: float, answer: str) -> None:
    row = {"problem": "1+1", "answer": "2", "solution": "It is 2."}
    assert with_shares(row, answer=share).mapping.answer == answer


def test_a_column_that_few_rows_fill_is_proposed_where_there_is_no_other() -> None:
    assert with_shares({"prompt": "1+1", "answer": "2"}, answer=0.1).mapping.answer == "answer"
    assert with_shares({"prompt": "1+1", "text": "1+1"}, prompt=0.1).mapping.prompt == "text"


def test_the_first_of_unknown_columns_with_texts_is_the_guess() -> None:
    assert recognised({"id": 4, "Frage": "Wie viel?", "Quelle": "Buch"}).mapping.prompt == "Frage"


def test_a_marker_in_some_answers_only_is_no_gsm8k() -> None:
    found = recognised({"question": "a", "answer": "x #### 1"}, {"question": "b", "answer": "2"})
    assert found.mapping.transform == "columns"


def test_tests_that_some_rows_lack_are_not_demanded_of_all() -> None:
    row = {"instruction": "i", "response": "r"}
    found = recognised({**row, "test_cases": ["assert f"]}, {**row, "test_cases": None})
    assert (found.mapping.test_cases, found.mapping.transform) == ("test_cases", "instruction_response")


def test_a_file_without_rows_is_not_recognised() -> None:
    found = recognise([], [])
    assert (found.schema, found.mapping) == ("unknown", ColumnMapping())


def test_a_proposal_can_be_sent_as_json() -> None:
    said = recognised({"question": "a", "answer": "#### 1"}).as_dict()
    assert said["mapping"]["prompt"] == "question"
    assert set(said) == {"schema", "title", "why", "mapping"}


def test_what_numbers_the_rows_is_never_the_prompt() -> None:
    rows = [{"ID": str(n), "text": f"A-{n}", "n": n} for n in range(3)]
    assert recognised(*rows).mapping.prompt == ""
    assert "no column looks like a prompt" in recognised(*rows).why


def test_a_missing_answer_column_is_a_choice_to_make() -> None:
    assert "Choose the answer column" in recognised({"text": "Tell me a story"}).why
