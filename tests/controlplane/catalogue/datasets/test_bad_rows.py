"""Rows that can be read and not used: fields, types, roles, tests, answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.catalogue.datasets.sources import found, jsonl, report

USER, SYSTEM = {"role": "user", "content": "hi"}, {"role": "system", "content": "be kind"}
ASSISTANT = {"role": "assistant", "content": "hello"}


def plain(n: int) -> dict[str, Any]:
    return {"question": f"q{n}", "answer": str(n)}


def chat(n: int) -> dict[str, Any]:
    return {"messages": [SYSTEM, {"role": "user", "content": f"q{n}"}], "answer": str(n)}


def with_tests(n: int) -> dict[str, Any]:
    return {
        "instruction": f"write f{n}",
        "response": f"def f{n}(): return {n}",
        "test_cases": [f"assert f{n}() == {n}"],
        "difficulty": "easy",
        "tags": ["a"],
    }


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


BAD = [
    (plain, {"question": None}, "missing_field"),
    (plain, {"question": 7}, "wrong_type"),
    (plain, {"question": {"a": 1}}, "wrong_type"),
    (plain, {"question": ["a"]}, "wrong_type"),
    (plain, {"question": True}, "wrong_type"),
    (plain, {"question": ""}, "empty_field"),
    (plain, {"question": " \n\u00a0"}, "empty_field"),
    (plain, {"answer": None}, "missing_field"),
    (plain, {"answer": {"unit": "cm"}}, "wrong_type"),
    (plain, {"answer": [[]]}, "empty_field"),
    (plain, {"answer": " "}, "empty_field"),
    (plain, {"answer": "..."}, "empty_answer"),
    (plain, {"answer": " . \u00a0! "}, "empty_answer"),
    (chat, {"messages": []}, "empty_field"),
    (chat, {"messages": "hi"}, "wrong_type"),
    (chat, {"messages": None}, "missing_field"),
    (chat, {"messages": ["hi"]}, "message_shape"),
    (chat, {"messages": [{"role": "user"}]}, "message_shape"),
    (chat, {"messages": [{"role": "user", "content": 5}]}, "message_shape"),
    (chat, {"messages": [{"role": "robot", "content": "x"}]}, "chat_roles"),
    (chat, {"messages": [SYSTEM]}, "chat_roles"),
    (chat, {"messages": [USER, {"role": "tool", "content": "x"}, USER]}, "chat_roles"),
    (chat, {"messages": [ASSISTANT, USER]}, "chat_roles"),
    (chat, {"messages": [USER, SYSTEM]}, "chat_roles"),
    (chat, {"messages": [{"role": "user", "content": " "}]}, "empty_field"),
    (with_tests, {"test_cases": "f()"}, "test_cases_type"),
    (with_tests, {"test_cases": [1]}, "test_cases_type"),
    (with_tests, {"test_cases": {"a": 1}}, "test_cases_type"),
    (with_tests, {"test_cases": [" "]}, "test_cases_type"),
    (with_tests, {"tags": [1]}, "wrong_type"),
    (with_tests, {"difficulty": ["easy"]}, "wrong_type"),
    (with_tests, {"instruction": ""}, "empty_field"),
]


@pytest.mark.parametrize(("make", "change", "kind"), BAD)
def test_a_row_that_can_not_be_used_is_told_of(tmp_path: Path, make: Any, change: dict[str, Any], kind: str) -> None:
    rows = [make(n) for n in range(30)]
    rows[20] |= change
    told = report(tmp_path, jsonl(rows))
    errors = [(p["line"], p["kind"], p["field"]) for p in told["problems"] if p["kind"] != "mixed_schemas"]
    assert errors == [(21, kind, next(iter(change)))]
    assert (told["rows"], told["bad_rows"]) == (30, 1)


@pytest.mark.parametrize(("make", "name"), [(plain, "question"), (plain, "answer"), (chat, "messages")])
def test_a_required_field_that_is_missing_far_down_is_found_there(tmp_path: Path, make: Any, name: str) -> None:
    rows = [make(n) for n in range(20_000)]
    rows[17_122] = without(rows[17_122], name)
    told = report(tmp_path, jsonl(rows))
    [problem] = [p for p in told["problems"] if p["kind"] == "missing_field"]
    assert (problem["line"], problem["field"]) == (17_123, name)
    assert f"“{name}” is missing" in problem["message"]


def test_all_that_is_wrong_with_a_row_is_told_at_once(tmp_path: Path) -> None:
    rows = [with_tests(n) for n in range(10)]
    rows[4] |= {"instruction": "", "test_cases": [3], "tags": 5, "response": None}
    told = report(tmp_path, jsonl(rows))
    kinds = {(p["field"], p["kind"]) for p in told["problems"]}
    assert {("instruction", "empty_field"), ("test_cases", "test_cases_type")} <= kinds
    assert {("tags", "wrong_type"), ("response", "missing_field")} <= kinds
    assert told["bad_rows"] == 1


def test_gsm8k_answers_need_their_marker(tmp_path: Path) -> None:
    rows = [{"question": f"q{n}", "answer": f"so it is\n#### {n}"} for n in range(60)]
    rows[55]["answer"] = "so it is 5"
    rows[56]["answer"] = "so it is\n#### "
    told = report(tmp_path, jsonl(rows))
    assert found(told) == [(56, "marker_missing"), (57, "empty_answer")]
    assert told["recognised"]["mapping"]["transform"] == "gsm8k"


def test_equal_prompts_are_warned_of_with_the_first_ones_line(tmp_path: Path) -> None:
    rows = [plain(n % 8) for n in range(12)]
    told = report(tmp_path, jsonl(rows))
    assert found(told) == [(line, "exact_duplicate") for line in (9, 10, 11, 12)]
    assert "line 1." in told["problems"][0]["message"]
    assert (told["duplicates"]["exact"], told["bad_rows"]) == (4, 0)


@pytest.mark.parametrize("extra", [{}, {"weight": 1}])
def test_chats_are_equal_by_roles_and_contents_alone(tmp_path: Path, extra: dict[str, Any]) -> None:
    rows = [{"messages": [SYSTEM, {"role": "user", "content": f"q{n}"} | extra, ASSISTANT]} for n in range(6)]
    rows.append({"messages": [SYSTEM, {"role": "user", "content": "q2"} | extra, {**ASSISTANT, "content": "other"}]})
    rows.append({"note": 5, "messages": [SYSTEM, {"role": "user", "content": "q3"} | extra, ASSISTANT]})
    told = report(tmp_path, jsonl(rows))
    duplicates = [
        (p["line"], p["kind"]) for p in told["problems"] if p["kind"] in ("exact_duplicate", "conflicting_answers")
    ]
    assert duplicates == [(7, "conflicting_answers"), (8, "exact_duplicate")]


def test_a_row_of_another_schema_stands_out(tmp_path: Path) -> None:
    rows = [plain(n) | {"level": 1} for n in range(40)]
    rows[30] = {"instruction": "do it", "response": "done"}
    rows[31] |= {"level": "high"}
    rows[32] = without(rows[32], "level")
    rows[33] |= {"level": None}
    told = report(tmp_path, jsonl([*rows[:20], *rows[20:]]))
    mixed = [(p["line"], p["field"]) for p in told["problems"] if p["kind"] == "mixed_schemas"]
    assert mixed == [(31, "instruction"), (32, "level"), (33, "level")]
    assert {p["kind"] for p in told["problems"] if p["line"] == 31} == {"mixed_schemas", "missing_field"}


def test_a_field_that_only_some_rows_have_is_no_other_schema(tmp_path: Path) -> None:
    told = report(tmp_path, jsonl([plain(n) | ({"hint": "x"} if n % 3 else {}) for n in range(60)]))
    assert told["problems"] == []
    hint = next(column for column in told["columns"] if column["name"] == "hint")
    assert (hint["filled"], hint["types"]) == (40, {"text": 40})


def test_columns_are_counted_by_what_is_in_them(tmp_path: Path) -> None:
    rows = [plain(n) | {"x": [None, 1, 2.5][n % 3], "y": {"a": [n]}, "z": True} for n in range(1500)]
    told = report(tmp_path, jsonl(rows))
    columns = {column["name"]: (column["filled"], column["types"]) for column in told["columns"]}
    assert columns["x"] == (1000, {"number": 1000, "null": 500})
    assert columns["y"] == (1500, {"object": 1500})
    assert columns["z"] == (1500, {"true or false": 1500})
    assert columns["question"] == (1500, {"text": 1500})


def test_a_column_that_is_null_at_first_may_have_values_later(tmp_path: Path) -> None:
    rows = [plain(n) | {"input": None if n < 1200 else f"i{n}"} for n in range(2400)]
    told = report(tmp_path, jsonl(rows))
    assert told["problems"] == []
    assert next(c for c in told["columns"] if c["name"] == "input")["types"] == {"null": 1200, "text": 1200}


def test_a_mapping_that_was_chosen_is_the_one_that_is_checked(tmp_path: Path) -> None:
    rows = jsonl([{"question": "a", "other": "b"}, {"question": "c", "other": ""}])
    assert report(tmp_path, rows)["bad_rows"] == 0
    chosen = report(tmp_path, rows, mapping={"prompt": "other"})
    assert found(chosen) == [(2, "empty_field")]


def test_a_column_that_only_later_rows_have_is_checked_where_it_was_chosen(tmp_path: Path) -> None:
    rows = [plain(n) for n in range(600)] + [{"late": "Add 1 and 2."}, {"late": " "}]
    chosen = report(tmp_path, jsonl(rows), mapping={"prompt": "late"})
    assert chosen["unfit_rows"] == 601
    assert [one["name"] for one in chosen["passes"]] == ["first pass", "second pass"]
