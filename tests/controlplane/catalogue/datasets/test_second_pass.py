"""The slow half of the check, on real files: what it finds, where, and with which words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets import actions
from controlplane.catalogue.datasets.models import DatasetVersion
from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import report as reports
from controlplane.catalogue.datasets.reader.checking import second_pass
from controlplane.catalogue.datasets.reader.checking.report import Collector
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping
from controlplane.catalogue.datasets.reader.parsing import formats, repeated_keys
from controlplane.catalogue.datasets.reader.parsing.records import RowSource
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile
from controlplane.catalogue.datasets.reader.versions import import_rows
from tests.controlplane.catalogue.datasets.sources import jsonl, report
from tests.controlplane.catalogue.datasets.steps import checked, worked

PAIRS = ColumnMapping(prompt="instruction", answer="response", transform="instruction_response")
TESTED = ColumnMapping(transform="instruction_response_tests")
ASKED = "Write a function in Python that adds the two numbers which it is given, and explain it."


def check(folder: Path, rows: Sequence[Any], mapping: ColumnMapping = PAIRS) -> list[dict[str, Any]]:
    """The problems of a file with these rows (texts: lines as they are), by line."""
    source = folder / files.SOURCE
    source.write_bytes(b"".join((row if isinstance(row, bytes) else json.dumps(row).encode()) + b"\n" for row in rows))
    with Collector(folder / files.PROBLEMS) as collector:
        progress = ProgressFile(folder, "second pass", source.stat().st_size)
        second_pass.run(RowSource(source, formats.detect(source)), mapping, collector, progress)
    found: list[dict[str, Any]] = collector.as_dict()["problems"]
    return found


def row(response: str, asked: str = ASKED, **more: Any) -> dict[str, Any]:
    return {"instruction": asked, "response": response, **more}


def test_code_that_does_not_parse_is_told_with_its_place(tmp_path: Path) -> None:
    (found,) = check(tmp_path, [row("def f(a, b):\n    return a + b"), row("def f(a, b)\n    return a + b")])
    assert (found["line"], found["kind"], found["field"]) == (2, "code_syntax", "response")
    assert (found["code_line"], found["column"], found["excerpt"]) == (1, 12, "def f(a, b)")
    assert "expected ':'" in found["message"]


def test_each_test_that_does_not_parse_is_told_by_its_number(tmp_path: Path) -> None:
    tests = ["assert f(1, 2) == 3", "assert f(1, 2 == 3", "assert = 5"]
    found = check(tmp_path, [row("def f(a, b):\n    return a + b", test_cases=tests)], TESTED)
    assert [(one["kind"], one["field"], one["column"]) for one in found] == [
        ("test_syntax", "test_cases", 9),
        ("test_syntax", "test_cases", 8),
    ]
    assert [one["message"][:6] for one in found] == ["Test 2", "Test 3"]


def test_a_test_that_asks_the_code_about_itself_is_told(tmp_path: Path) -> None:
    tests = ["assert f(1, 2) == 3", "assert is_sum(f(1, 2))", "assert isclose(f(1, 2), 3)"]
    found = check(tmp_path, [row("x = 1"), row("def f(a, b):\n    return a + b", test_cases=tests)], TESTED)
    assert [one["kind"] for one in found] == ["test_doubts"]
    assert found[0]["message"].startswith(
        "Test 2 in “test_cases”: “is_sum” is part of the tested code and would judge it"
    )


def test_tests_that_need_more_than_plain_values_are_told_by_their_number(tmp_path: Path) -> None:
    tests = ["assert f(1, 2) == 3", "s = Stack()\ns.push(1)\nassert s.top == 1", "assert True", "assert f(lambda: 1)"]
    found = check(tmp_path, [row("x = 1"), row("def f(a, b):\n    return a + b", test_cases=tests)], TESTED)
    assert [(one["line"], one["kind"], one["field"]) for one in found] == [(2, "test_needs", "test_cases")] * 3
    assert [one["message"] for one in found] == [
        "Test 2 in “test_cases” can never pass. “s” is used as more than a plain value: s.push.",
        "Test 3 in “test_cases” can never pass. It doesn't call anything that the tested code defines.",
        "Test 4 in “test_cases” can never pass. A function that the test defines is passed to “f”.",
    ]
    assert found[1]["excerpt"] == "assert True"


@pytest.mark.parametrize(
    "test",
    [
        *(
            "assert f(" * 20_000,
            "[" * 5_000 + "f(1)",
            "f" + ".a" * 20_000,
            "-" * 40_000 + "f(1)",
            "lambda:" * 5_000 + "1",
        ),
        *("f(1)\n" * 100_000, "if 1: f(1)\n" + "elif 1: 1\n" * 4_000, "assert f(" + "1," * 20_000 + ")"),
        "".join(" " * n + f"def f{n}():\n" for n in range(90)) + " " * 90 + "f(1)",
    ],
)
def test_long_and_deep_tests_end_no_check(tmp_path: Path, test: str) -> None:
    found = check(tmp_path, [row("x = 1", test_cases=[test]), row("x = 1", test_cases=["assert True"])], TESTED)
    assert [one["kind"] for one in found if one["line"] == 2] == ["test_needs"]


def test_prose_is_code_only_beside_tests(tmp_path: Path) -> None:
    prose = row("Add the two numbers (with a plus sign.", test_cases=["assert f()"])
    assert [one["kind"] for one in check(tmp_path, [prose], TESTED)] == ["code_syntax"]
    assert check(tmp_path, [prose], PAIRS) == []


def test_code_in_chat_messages_and_follow_ups_is_looked_at(tmp_path: Path) -> None:
    broken = "```python\nx = (\n```"
    chat = {"messages": [{"role": "user", "content": broken}, {"role": "assistant", "content": broken}]}
    assert [one["field"] for one in check(tmp_path, [chat], ColumnMapping(prompt="messages", messages=True))] == [
        "messages"
    ]
    mapping = ColumnMapping(prompt="instruction", answer="response", follow_up="then", follow_up_response="last")
    assert [
        one["field"] for one in check(tmp_path, [row("fine", then="And?", last="import re\ndef f(:")], mapping)
    ] == ["last"]


def test_a_key_that_stands_twice_is_told_with_its_second_place(tmp_path: Path) -> None:
    line = b'{"instruction": "a", "response": "b", "response": "c"}'
    (found,) = check(tmp_path, [row("fine"), line])
    assert (found["line"], found["kind"], found["field"]) == (2, "duplicate_keys", "response")
    assert found["column"] == line.index(b'"response": "c"') + 1


def test_near_duplicates_are_warned_of_with_the_line_they_resemble(tmp_path: Path) -> None:
    other = "How long does a train take from Bern to Basel when it stops in Olten for a quarter of an hour?"
    again = ASKED.replace("two", "2")
    rows = [row("a"), row("b", other), row("c", again), row("d", again.replace("2", "3")), row("e", ASKED.upper())]
    found = check(tmp_path, [*rows, row("f")])
    assert {one["kind"] for one in found} == {"near_duplicate"}
    assert [(one["line"], one["message"].split(",")[0]) for one in found[1:]] == [
        (4, "The same as line 3 except for numbers."),
        (5, "The same words as in line 1; only case"),
    ]
    assert found[0]["line"] == 3
    assert found[0]["message"].endswith("are also in line 1.")
    assert found[2]["excerpt"] == ASKED.upper()


def test_rows_that_the_first_pass_refuses_stop_nothing(tmp_path: Path) -> None:
    rows = [b"{broken", b"[1]", {"instruction": None, "response": "x"}, row("def f(:"), b'{"response": "def f(:"}']
    assert [(one["line"], one["kind"]) for one in check(tmp_path, rows)] == [(4, "code_syntax"), (5, "code_syntax")]


def test_progress_ends_at_the_end_and_no_file_is_left(tmp_path: Path) -> None:
    check(tmp_path, [row("a", f"{number} apples") for number in range(50)])
    told = json.loads((tmp_path / files.PROGRESS).read_text())
    assert (told["stage"], told["rows"], told["bytes"]) == ("second pass", 50, told["of"])
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([files.SOURCE, files.PROBLEMS, files.PROGRESS])


@pytest.mark.parametrize(
    ("raw", "names"),
    [
        (b'{"a": 1}', []),
        (b'{"a": "x\\"y\\"", "b": ["\\\\", {"c": ""}]}', []),
        (b'{"a":"\\u0022","b":{"a":1}}', []),
        (b'{"a": 1, "a": 1}', ["a"]),
        (b'{"a": 1, "\\u0061": 2}', ["a"]),
        (b'{"a": "\\\\", "b": "\\\\", "b": "", "a": "\\\\"}', ["b", "a"]),
        (b'{"m": [{"role": "x", "role" : "y"}]}', ["role"]),
    ],
)
def test_a_count_of_quotes_tells_whether_a_key_can_stand_twice(raw: bytes, names: list[str]) -> None:
    assert [name for name, _ in repeated_keys.repeated(raw)] == names
    assert repeated_keys.may_have_any(raw, json.loads(raw)) or not names


def test_ordinary_rows_are_not_parsed_again() -> None:
    told = {"question": 'He said "hi"', "answer": "a\nb", "n": 1, "tags": ["x"], "m": [{"role": "r", "content": "c"}]}
    assert not repeated_keys.may_have_any(json.dumps(told).encode(), told)


def test_an_error_behind_all_the_warnings_that_are_listed_is_left_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_LISTED", 3)
    alike = [{"prompt": "Write a function that adds", "answer": "x", "test_cases": ["assert f(1) == 2"]}] * 20
    broken = {"prompt": "Another thing to write altogether", "answer": "y", "test_cases": ["assert f(1 == 2"]}
    told = report(tmp_path, jsonl([*alike, broken]))
    assert (told["bad_rows"], told["listed"]) == (1, 4)
    mapping = {**told["recognised"]["mapping"], "leave_out": True}
    made = import_rows.run(tmp_path, {"mapping": mapping, "split": {"share": 0}})
    assert (made["rows"], made["bad_rows"]) == (20, 1)


ASKING = [
    *("What do the two pumps of the city move in an hour?", "How far is the harbour from the mill by boat in winter?"),
    "HOW far is the harbour from the mill, by boat, in winter?",
    *("What do the two pumps of the city move in an hour?", "Which of the three bridges was closed for repairs?"),
]


def ready_or_not(rows: list[dict[str, Any]], mapping: ColumnMapping) -> DatasetVersion:
    """A version of these rows, imported with a mapping that is not the recognised one."""
    version = checked(jsonl(rows))
    assert version.report["recognised"]["mapping"] != mapping.as_dict()
    assert actions.request_import(version, mapping, share=0)
    return worked(version)


@pytest.mark.django_db
def test_tests_that_need_more_in_a_column_that_only_the_mapping_names_are_in_the_check() -> None:
    rows = [{"prompt": asked, "answer": "x", "checks": ["x = f()\nassert x"]} for asked in ASKING]
    rows[4]["checks"] = ["assert f()", "assert Stack().pushed(1)"]
    version = ready_or_not(rows, ColumnMapping(prompt="prompt", answer="answer", test_cases="checks"))
    assert (version.status, version.rows, version.report["bad_rows"]) == (DatasetVersion.READY, 5, 0)
    told = [one for one in version.report["problems"] if one["kind"] == "test_needs"]
    assert [(one["line"], one["field"]) for one in told] == [(5, "checks")]


@pytest.mark.django_db
def test_tests_in_a_column_that_only_the_mapping_names_are_read_by_the_check() -> None:
    rows = [{"prompt": asked, "answer": "x", "checks": ["x = f()\nassert x"]} for asked in ASKING]
    rows[4]["checks"] = ["assert f()", "assert f(1 == 2"]
    mapping = ColumnMapping(prompt="prompt", answer="answer", test_cases="checks")
    version = ready_or_not(rows, mapping)
    assert (version.status, version.report["mapped"]["bad_rows"]) == (DatasetVersion.NEEDS_MAPPING, 1)
    (told,) = version.report["mapped"]["problems"]
    assert (told["line"], told["kind"]) == (5, "test_syntax")
    assert told["message"].startswith("Test 2 in “checks” doesn't parse")
    assert actions.request_import(version, replace(mapping, leave_out=True), share=0)
    assert (worked(version).status, version.rows) == (DatasetVersion.READY, 4)


@pytest.mark.django_db
def test_code_in_an_answer_that_only_the_mapping_names_is_read_by_the_check() -> None:
    rows = [{"prompt": asked, "answer": "x", "code": "def f(a):\n    return a"} for asked in ASKING]
    rows[1]["code"] = "def f(a)\n    return a"
    version = ready_or_not(rows, ColumnMapping(prompt="prompt", answer="code"))
    assert (version.status, version.report["mapped"]["unfit_rows"]) == (DatasetVersion.NEEDS_MAPPING, 1)
    (found,) = [one for one in version.report["mapped"]["problems"] if one["kind"] == "code_syntax"]
    assert (found["line"], found["field"], found["code_line"], found["excerpt"]) == (2, "code", 1, "def f(a)")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "template", ["", "Answer in one short and polite sentence without any numbers in it: {prompt}"]
)
def test_prompts_that_repeat_in_a_column_that_only_the_mapping_names_are_found_by_the_check(template: str) -> None:
    rows = [{"prompt": f"{n}", "answer": "x", "other": asked} for n, asked in enumerate(ASKING)]
    version = ready_or_not(rows, ColumnMapping(prompt="other", answer="answer", template=template))
    told = [(one["line"], one["kind"], one["message"]) for one in version.report["problems"]]
    again = [(3, "near_duplicate", "The same words as in line 2"), (4, "exact_duplicate", "The prompt is the same as")]
    assert [(line, kind) for line, kind, _ in told] == [(line, kind) for line, kind, _ in again]
    assert all(said.startswith(begin) for (_, _, said), (_, _, begin) in zip(told, again, strict=True))
    assert (version.status, version.rows) == (DatasetVersion.READY, 5)
