"""From an uploaded row to a canonical one, for every schema, and what is said of a row that doesn't fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.columns.fields import RowProblem
from controlplane.catalogue.datasets.reader.columns.mapping import (
    ColumnMapping,
    canonical,
    canonical_rows,
    normalised_prompt,
    problems,
)
from controlplane.catalogue.datasets.reader.columns.templating import fill, placeholder_names
from controlplane.catalogue.datasets.reader.columns.transforms import TRANSFORMS
from controlplane.catalogue.datasets.reader.problems import KINDS

QA = ColumnMapping(prompt="q", answer="a")
CHAT = ColumnMapping(prompt="messages", messages=True)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, str]:
    return {"role": "system", "content": text}


def mapped(row: dict[str, Any], **mapping: Any) -> dict[str, Any]:
    return canonical(row, ColumnMapping(**mapping), 7)


def test_a_row_has_its_number_its_prompt_its_answer_and_what_else_it_tells() -> None:
    made = canonical({"q": "1+1?", "a": 2, "source": "book", "page": 3}, QA, 41)
    assert made == {
        "row_id": 41,
        "prompt": [user("1+1?")],
        "answer": "2",
        "test_cases": [],
        "metadata": {"source": "book", "page": 3},
    }


def test_names_that_mean_something_elsewhere_make_way() -> None:
    row = {"q": "x", "a": "y", "prompt": 1, "source_prompt": 2, "completions": 3, "level": 4, "difficulty": "own"}
    made = mapped(row, prompt="q", answer="a", difficulty="level")
    assert made["metadata"] == {
        "source_source_prompt": 1,
        "source_prompt": 2,
        "source_completions": 3,
        "source_difficulty": "own",
        "difficulty": 4,
    }


def test_an_input_goes_below_the_prompt_where_a_row_has_one() -> None:
    asked = {"prompt": "instruction", "input": "input", "answer": "output"}
    with_input = mapped({"instruction": "Sort.", "input": "3 1 2", "output": "1 2 3"}, **asked)
    without = mapped({"instruction": "Sort.", "input": "", "output": "1 2 3"}, **asked)
    assert [with_input["prompt"], without["prompt"]] == [[user("Sort.\n\n3 1 2")], [user("Sort.")]]
    assert with_input["metadata"] == {}


def test_a_system_prompt_goes_first_or_follows_a_chats_own() -> None:
    assert mapped({"q": "x"}, prompt="q", system_prompt="ours")["prompt"] == [system("ours"), user("x")]
    for own, first in (([], "ours"), ([system("own")], "own\n\nours")):
        row = {"messages": [*own, user("x")]}
        made = mapped(row, prompt="messages", messages=True, system_prompt="ours")
        assert made["prompt"] == [system(first), user("x")]


def test_plain_text_is_one_message_with_the_system_prompt_above() -> None:
    assert mapped({"q": "1+1"}, prompt="q", chat=False, system_prompt="Add.")["prompt"] == [user("Add.\n\n1+1")]


def test_the_last_turn_of_the_assistant_is_the_answer() -> None:
    made = canonical({"messages": [user("a"), assistant("b"), user("c"), assistant("d")]}, CHAT, 0)
    assert (made["prompt"], made["answer"]) == ([user("a"), assistant("b"), user("c")], "d")
    assert canonical({"messages": [user("a")]}, CHAT, 0)["answer"] is None


def test_a_chosen_answer_stands_in_for_the_last_turn() -> None:
    row = {"messages": [user("a"), assistant("long")], "final": "5"}
    made = mapped(row, prompt="messages", messages=True, answer="final")
    assert (made["prompt"], made["answer"]) == ([user("a")], "5")


def test_messages_may_be_told_by_from_and_value_and_as_the_text_of_a_list() -> None:
    row = {"messages": '[{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]'}
    made = canonical(row, CHAT, 0)
    assert (made["prompt"], made["answer"]) == ([user("a")], "b")


def test_a_follow_up_goes_on_with_the_first_answer() -> None:
    row = {"instruction": "Make a class.", "response": "class A: ...", "follow_up": "Add a method."}
    asked = {"transform": "instruction_response", "follow_up": "follow_up", "follow_up_response": "then"}
    made = mapped({**row, "then": "def f(self): ..."}, **asked)
    assert made["prompt"] == [user("Make a class."), assistant("class A: ..."), user("Add a method.")]
    assert made["answer"] == "def f(self): ..."
    assert made["metadata"] == {"follow_up": "Add a method.", "then": "def f(self): ..."}
    single = mapped({**row, "follow_up": None}, **asked)
    assert (single["prompt"], single["answer"]) == ([user("Make a class.")], "class A: ...")


def test_a_row_with_a_follow_up_may_become_one_row_per_turn() -> None:
    row = {
        "q": "Make a class.",
        "a": "class A: ...",
        "more": "Add a method.",
        "then": "def f",
        "t": ["x"],
        "turn": "own",
    }
    mapping = ColumnMapping(
        prompt="q", answer="a", test_cases="t", follow_up="more", follow_up_response="then", one_per_turn=True
    )
    first, second = canonical_rows(row, mapping, 7)
    assert (first["prompt"], first["answer"], first["test_cases"]) == ([user("Make a class.")], "class A: ...", [])
    assert second["prompt"] == [user("Make a class."), assistant("class A: ..."), user("Add a method.")]
    assert (second["answer"], second["test_cases"]) == ("def f", ["x"])
    assert [made["row_id"] for made in (first, second)] == [14, 15]
    assert [(made["metadata"]["file_row"], made["metadata"]["turn"]) for made in (first, second)] == [(7, 1), (7, 2)]
    assert first["metadata"]["source_turn"] == second["metadata"]["source_turn"] == "own"
    (single,) = canonical_rows({**row, "more": ""}, mapping, 8)
    assert (single["row_id"], single["answer"], single["test_cases"]) == (16, "class A: ...", ["x"])
    assert [made["row_id"] for made in canonical_rows(row, replace(mapping, one_per_turn=False), 7)] == [7]


def test_gsm8k_takes_the_number_after_the_marker_and_keeps_the_solution() -> None:
    made = mapped({"question": "q", "answer": "First #### no.\nThen 1,000 + 80.\n#### 1,080\n"}, transform="gsm8k")
    assert made["answer"] == "1080"
    assert made["metadata"] == {"reasoning": "First #### no.\nThen 1,000 + 80."}
    assert mapped({"question": "q", "answer": "#### 1, 2 and 3"}, transform="gsm8k")["answer"] == "1, 2 and 3"


@pytest.mark.parametrize(
    ("response", "answer", "reasoning"),
    [
        ("<think>2+2</think><answer>4</answer>", "4", "2+2"),
        ("<think>2+2</think>\n4\n", "4", "2+2"),
        ("2+2</think><answer> 4 </answer>", "4", "2+2"),
        ("<think>is it <answer>5</answer>?</think><answer>4</answer>", "4", "is it <answer>5</answer>?"),
        ("So <answer>4</answer>", "4", "So"),
    ],
)
def test_of_think_tags_the_answer_is_what_the_answer_tag_holds(response: str, answer: str, reasoning: str) -> None:
    made = mapped({"prompt": "q", "response": response}, transform="think")
    assert (made["answer"], made["metadata"]["reasoning"]) == (answer, reasoning)


@pytest.mark.parametrize("cases", [["assert f(1)"], '["assert f(1)"]'])
def test_tests_are_a_list_of_texts_or_in_a_table_the_text_of_one(cases: Any) -> None:
    row = {"instruction": "f", "response": "def f(x): return x", "test_cases": cases}
    assert mapped(row, transform="instruction_response_tests")["test_cases"] == ["assert f(1)"]


def test_difficulty_and_tags_keep_their_kind() -> None:
    asked = {"prompt": "q", "difficulty": "level", "tags": "topics"}
    made = mapped({"q": "x", "level": 3, "topics": "sorting, lists"}, **asked)
    assert made["metadata"] == {"difficulty": 3, "tags": ["sorting", "lists"]}
    assert mapped({"q": "x", "topics": ["a"]}, **asked)["metadata"] == {"tags": ["a"]}


BAD_ROWS = [
    ({"a": "1"}, QA, "missing_field", "q"),
    ({"q": None, "a": "1"}, QA, "missing_field", "q"),
    ({"q": " \n", "a": "1"}, QA, "empty_field", "q"),
    ({"q": 5, "a": "1"}, QA, "wrong_type", "q"),
    ({"q": [user("x")], "a": "1"}, QA, "wrong_type", "q"),
    ({"q": "x"}, QA, "missing_field", "a"),
    ({"q": "x", "a": ""}, QA, "empty_field", "a"),
    ({"q": "x", "a": {"unit": "cm"}}, QA, "wrong_type", "a"),
    ({"q": "x", "a": []}, QA, "empty_field", "a"),
    ({"q": "x", "a": " ... "}, QA, "empty_answer", "a"),
    ({"q": "x", "a": "5"}, ColumnMapping(prompt="q", answer="a", answer_after="####"), "marker_missing", "a"),
    ({"q": "x", "a": "#### "}, ColumnMapping(prompt="q", answer="a", answer_after="####"), "empty_answer", "a"),
    ({"q": "x", "a": "5"}, ColumnMapping(prompt="q", answer="a", transform="gsm8k"), "marker_missing", "a"),
    ({"q": "x", "a": "5"}, ColumnMapping(prompt="q", answer="a", transform="think"), "marker_missing", "a"),
    ({"q": "x", "t": "f(1)"}, ColumnMapping(prompt="q", test_cases="t"), "test_cases_type", "t"),
    ({"q": "x", "t": {"a": 1}}, ColumnMapping(prompt="q", test_cases="t"), "test_cases_type", "t"),
    ({"q": "x", "t": ["assert f", 3]}, ColumnMapping(prompt="q", test_cases="t"), "test_cases_type", "t"),
    ({"q": "x", "t": ["assert f", " "]}, ColumnMapping(prompt="q", test_cases="t"), "test_cases_type", "t"),
    ({"q": "x", "d": ["hard"]}, ColumnMapping(prompt="q", difficulty="d"), "wrong_type", "d"),
    ({"q": "x", "d": [1]}, ColumnMapping(prompt="q", tags="d"), "wrong_type", "d"),
    ({"messages": []}, CHAT, "empty_field", "messages"),
    ({"messages": "hello"}, CHAT, "wrong_type", "messages"),
    ({"messages": ["hello"]}, CHAT, "message_shape", "messages"),
    ({"messages": [{"role": "user"}]}, CHAT, "message_shape", "messages"),
    ({"messages": [{"role": "user", "content": None}]}, CHAT, "message_shape", "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, CHAT, "chat_roles", "messages"),
    ({"messages": [assistant("a")]}, CHAT, "chat_roles", "messages"),
    ({"messages": [system("s")]}, CHAT, "chat_roles", "messages"),
    ({"messages": [user("a"), assistant("b"), assistant("c"), system("s")]}, CHAT, "chat_roles", "messages"),
    ({"messages": [user("a"), assistant("b"), system("s"), user("c")]}, CHAT, "chat_roles", "messages"),
    ({"messages": [user(" "), assistant("b")]}, CHAT, "empty_field", "messages"),
    ({"messages": [user("a"), assistant(" ")]}, CHAT, "empty_field", "messages"),
    ({"q": "x"}, ColumnMapping(prompt="q", transform="mine"), "transform", ""),
]


def test_what_is_wrong_with_a_row_is_named(subtests: pytest.Subtests) -> None:
    for row, mapping, kind, field in BAD_ROWS:
        with subtests.test(field=field):
            with pytest.raises(RowProblem) as caught:
                canonical(row, mapping, 0)
            assert (caught.value.kind, caught.value.field) == (kind, field)
            assert kind in KINDS


def test_an_unbalanced_chat_says_which_message_breaks_it() -> None:
    chat = [system("s"), user("a"), assistant("b"), user("c"), system("d")]
    with pytest.raises(RowProblem, match=r"^Message 5 .* is by the system, but it is the assistant's turn"):
        canonical({"messages": chat}, CHAT, 0)


# --- the mapping itself ---

COLUMNS = ("q", "a", "messages", "follow_up")
BAD_MAPPINGS = [
    ({"prompt": ""}, "prompt", "Choose the column"),
    ({"prompt": "nope"}, "prompt", "no column “nope”"),
    ({"tags": "nope"}, "tags", "no column “nope”"),
    ({"transform": "nope"}, "transform", "no transform “nope”"),
    ({"transform": "gsm8k", "answer": ""}, "answer", "no column “answer”"),
    ({"transform": "instruction_response_tests"}, "test_cases", "no column “test_cases”"),
    ({"answer": "q"}, "answer", "also the prompt column"),
    ({"messages": True, "chat": False}, "chat", "Messages need a chat template"),
    ({"follow_up": "follow_up", "answer": ""}, "answer", "first answer"),
    ({"follow_up": "follow_up", "chat": False}, "follow_up", "needs chat messages"),
    ({"follow_up_response": "a"}, "follow_up", "follow-up question"),
    ({"one_per_turn": True}, "follow_up", "follow-up question"),
    ({"template": "Solve {problem}"}, "template", "uses {problem}"),
    ({"template": "Solve it."}, "template", "lacks {prompt}"),
    ({"template": "{prompt.__class__}"}, "template", "uses {prompt.__class__}"),
    ({"template": "{prompt!r:>9}"}, "template", "uses {prompt!r:>9}"),
]


def test_a_mapping_that_cannot_work_says_why(subtests: pytest.Subtests) -> None:
    for changes, field, words in BAD_MAPPINGS:
        with subtests.test(field=field):
            found = list(problems(ColumnMapping(**{"prompt": "q", "answer": "a", **changes}), COLUMNS))
            assert any(name == field and words in sentence for name, sentence in found), found


HEAD = 'def add(a, b):\n    """The sum."""\n'
HUMANEVAL_ROW = {
    "prompt": HEAD,
    "canonical_solution": "    total = a + b\n    return total\n",
    "test": "\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n\n",
    "entry_point": "add",
}


def test_a_row_of_humaneval_has_the_whole_function_and_a_test_that_calls_its_check() -> None:
    made = mapped(HUMANEVAL_ROW, transform="humaneval")
    assert made["prompt"] == [user(HEAD)]
    assert made["answer"] == f"{HEAD}    total = a + b\n    return total"
    assert made["test_cases"] == ["\n\ndef check(candidate):\n    assert candidate(1, 2) == 3\n\ncheck(add)\n"]
    assert made["metadata"] == {"entry_point": "add"}


@pytest.mark.parametrize(
    ("name", "value"), [("entry_point", None), ("entry_point", ["x"]), ("entry_point", "os.exit()"), ("test", "")]
)
def test_a_row_of_humaneval_without_its_test_or_function_does_not_fit(name: str, value: Any) -> None:
    with pytest.raises(RowProblem) as refused:
        mapped({**HUMANEVAL_ROW, name: value}, transform="humaneval")
    assert refused.value.field == name


def test_an_answer_of_several_lines_keeps_the_indentation_of_the_first() -> None:
    lines = "\n    total = a + b\n    return total\n"
    assert mapped({"q": "x", "a": lines}, prompt="q", answer="a")["answer"] == "    total = a + b\n    return total"
    assert mapped({"q": "x", "a": "  42 \n"}, prompt="q", answer="a")["answer"] == "42"


def test_every_transform_works_with_the_columns_that_it_takes_by_itself(subtests: pytest.Subtests) -> None:
    for name in TRANSFORMS:
        with subtests.test(name=name):
            columns = [*TRANSFORMS[name].columns.values(), "entry_point", "q", "a"]
            own = {} if TRANSFORMS[name].columns else {"prompt": "q", "answer": "a"}
            assert list(problems(ColumnMapping(transform=name, **own), columns)) == []


def test_a_mapping_survives_the_way_through_json_and_what_it_does_not_know() -> None:
    mapping = ColumnMapping(prompt="q", template="{prompt}!", leave_out=True)
    assert ColumnMapping.from_dict({**mapping.as_dict(), "of tomorrow": 1}) == mapping


def test_a_template_is_filled_with_texts_and_nothing_else() -> None:
    row = {"unit": "cm", "n": 3, "l": ["ä"], "none": None, "prompt": "own"}
    filled = fill("{prompt} in {unit}, {n} {l} {none}{gone} \\boxed{} {{prompt}}", "How long", row)
    assert filled == 'How long in cm, 3 ["ä"]  \\boxed{} {prompt}'
    assert placeholder_names("{a} {{b}} {} {a} { c }") == ["a", "c"]
    assert fill("{prompt}", "{unit} {0.__class__}", row) == "{unit} {0.__class__}"


def test_a_template_goes_around_the_last_message_of_a_chat() -> None:
    row = {"messages": [user("a"), assistant("b"), user("c")]}
    made = mapped(row, prompt="messages", messages=True, template="{prompt}!")
    assert [message["content"] for message in made["prompt"]] == ["a", "b", "c!"]


def test_prompts_are_the_same_up_to_white_space_case_and_system_prompt() -> None:
    assert normalised_prompt([system("s"), user("What  IS\n1+1?")]) == normalised_prompt([user("what is 1+1? ")])
