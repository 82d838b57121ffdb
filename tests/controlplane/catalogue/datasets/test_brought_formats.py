"""Datasets in the formats that people bring: proposed mappings, mapped rows and reported problems."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import check_file
from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical
from controlplane.catalogue.datasets.reader.parsing import contents, formats
from controlplane.catalogue.datasets.reader.parsing.records import RowSource
from tests.benchmarks._brought import CASES, Brought, tried
from workers.rewards.entries.answer import ExactMatchParams, exact_match
from workers.rewards.entries.choice import MultipleChoiceParams, TokenF1Params, multiple_choice, token_f1
from workers.rewards.extract import OTHER_ANSWERS


def test_the_proposal_for_a_file_is_right_or_the_problem_is_told(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for case in CASES:
        with subtests.test(case.name):
            assert tried(tmp_path, case) == ""


def test_the_best_of_several_right_answers_counts() -> None:
    row = {"answer": "New York", "other_answers": ["NYC"]}
    assert [exact_match(text, row, ExactMatchParams()) for text in ("nyc", "new york", "Boston")] == [1.0, 1.0, 0.0]
    assert multiple_choice("<answer>C</answer>", {"answer": ["A", "C"]}, MultipleChoiceParams()) == 1.0


def test_punctuation_of_any_script_equals_no_other_answer() -> None:
    ignoring = ExactMatchParams(ignore_punctuation=True)
    assert [exact_match(text, {"answer": "「東京」。"}, ignoring) for text in ("東京", "。。。")] == [1.0, 0.0]
    assert [exact_match(text, {"answer": "。"}, ignoring) for text in ("。", "！", "")] == [1.0, 0.0, 0.0]
    assert [token_f1(text, {"answer": "—"}, TokenF1Params()) for text in ("—", "?!")] == [1.0, 0.0]


def test_an_alternative_of_only_punctuation_is_left_out_and_the_others_are_kept() -> None:
    mapped = canonical(
        {"question": "Where?", "answers": ["Paris", "—"]}, ColumnMapping("question", answer="answers"), 0
    )
    assert (mapped["answer"], OTHER_ANSWERS in mapped["metadata"]) == ("Paris", False)


def test_metadata_paths_with_one_last_name_keep_both_values() -> None:
    row = {"question": "Who?", "a": {"id": 1}, "b": {"id": 2}}
    metadata = canonical(row, ColumnMapping("question", metadata="a.id, b.id"), 0)["metadata"]
    assert (metadata["a_id"], metadata["b_id"]) == (1, 2)


def test_a_value_that_no_row_has_is_never_proposed(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": [{"role": "user", "content": f"q{n}"}], "answer": None} for n in range(9)]
    case = Brought("", json.dumps(rows).encode(), {"prompt": "prompt", "answer": ""})
    assert tried(tmp_path, case) == ""


def test_system_texts_of_messages_row_and_mapping_are_joined_once() -> None:
    turns = [{"role": "system", "content": "Own."}, {"role": "user", "content": "Why?"}]
    for system, constant, expected in (
        ("Of the row.", "Of all.", "Own.\n\nOf the row.\n\nOf all."),
        ("", "Own.", "Own."),
        (None, "", "Own."),
    ):
        mapping = ColumnMapping("m", messages=True, system="s", system_prompt=constant)
        assert canonical({"m": turns, "s": system}, mapping, 0)["prompt"][0]["content"] == expected


def test_columns_in_a_template_tell_equal_prompts_apart(tmp_path: Path) -> None:
    rows = [{"question": "Which?", "A": f"w{n}", "B": "x", "answer": "AB"[n % 2]} for n in range(4)]
    (tmp_path / files.SOURCE).write_text(json.dumps(rows))
    report = check_file.run(tmp_path, {})
    assert report["duplicates"]["exact"] == 0
    again = check_file.run(tmp_path, {"mapping": report["checked"]})
    assert (again["duplicates"]["exact"], again["checked"]) == (0, report["checked"])


PAIRS = [{"question": f"What is {n} times {n + 1}?", "answer": f"{n * n + n}"} for n in range(3)]
TURNS = [[{"from": "human", "value": f"Say {n}"}, {"from": "gpt", "value": f"{n}"}] for n in range(3)]
SHAPES: dict[str, tuple[str, Any]] = {
    "a list in an object": (json.dumps({"version": 1, "data": PAIRS}), PAIRS),
    "over several lines": (json.dumps({"version": 1, "data": PAIRS}, indent=1), PAIRS),
    "inside another object": (json.dumps({"dataset": {"name": "x", "rows": PAIRS}}, indent=1), PAIRS),
    "a list with any name": (json.dumps({"title": "x", "sums": PAIRS}), PAIRS),
    "an answer of the hub": (
        json.dumps({"features": [{"name": "x"}], "rows": [{"row_idx": n, "row": row} for n, row in enumerate(PAIRS)]}),
        PAIRS,
    ),
    "columns": (json.dumps({name: [row[name] for row in PAIRS] for name in PAIRS[0]}), PAIRS),
    "columns by row number": (
        json.dumps({name: {str(n): row[name] for n, row in enumerate(PAIRS)} for name in PAIRS[0]}, indent=1),
        PAIRS,
    ),
    "a table": (
        json.dumps({"columns": [*PAIRS[0]], "index": [0, 1, 2], "data": [[*row.values()] for row in PAIRS]}),
        PAIRS,
    ),
    "by key": (
        json.dumps({f"k{n}": row for n, row in enumerate(PAIRS)}),
        [{**row, "key": f"k{n}"} for n, row in enumerate(PAIRS)],
    ),
    "objects over several lines": ("\n".join(json.dumps(row, indent=2) for row in PAIRS), PAIRS),
    "objects without line breaks": ("".join(map(json.dumps, PAIRS)), PAIRS),
    "items without their list": ("".join(f"{json.dumps(row)},\n" for row in PAIRS), PAIRS),
    "a row with a list of objects": (json.dumps({"question": "Why?", "tests": [{"input": "1"}]}), None),
    "a row of messages": (json.dumps({"messages": TURNS[0]}, indent=1), [{"messages": TURNS[0]}]),
    "lists of messages": (json.dumps(TURNS), [{"messages": turns} for turns in TURNS]),
    "a list of messages per line": ("\n".join(map(json.dumps, TURNS)), [{"messages": turns} for turns in TURNS]),
    "lists of values": (
        json.dumps([["a", 1], ["b", 2]]),
        [{"column 1": "a", "column 2": 1}, {"column 1": "b", "column 2": 2}],
    ),
    "lists of lists": (json.dumps([[["a"], 1]]), [{"row": [["a"], 1]}]),
    "texts": (json.dumps(["a", "b"]), [{"text": "a"}, {"text": "b"}]),
}


def test_rows_are_found_in_any_shape_of_json(tmp_path: Path, subtests: pytest.Subtests) -> None:
    source = tmp_path / "source"
    for name, (text, expected) in SHAPES.items():
        for content in (text.encode(), b"\xef\xbb\xbf" + text.encode(), gzip.compress(text.encode())):
            source.write_bytes(content)
            rows = [record.row for record in RowSource(source, formats.detect(source)).read()]
            with subtests.test(name):
                assert rows == (expected or [json.loads(text)])


def test_a_problem_of_a_row_inside_an_object_has_its_place(tmp_path: Path) -> None:
    text = json.dumps({"name": "x", "data": PAIRS}).replace("What is 1 times 2?", "Find \\pi")
    (tmp_path / "source").write_text(text)
    records = list(RowSource(tmp_path / "source", formats.detect(tmp_path / "source")).read())
    [problem] = records[1].problems
    assert (problem.line, problem.kind) == (2, "malformed_json")
    assert text.encode()[problem.byte - 2 : problem.byte] == b"\\p"


def test_a_function_receives_lists_and_texts_as_they_are_in_the_file() -> None:
    for value in (TURNS[0], ["a", 1], ["a"], [["a"], 1], "text"):
        assert contents.as_given(contents.as_row(value)) == value
