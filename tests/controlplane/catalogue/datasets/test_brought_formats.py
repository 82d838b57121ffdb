"""Datasets in the formats that people bring: proposed mappings, mapped rows and reported problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader.columns.mapping import ColumnMapping, canonical
from tests.benchmarks._brought import CASES, Brought, tried
from workers.rewards.entries.answer import ExactMatchParams, exact_match
from workers.rewards.entries.choice import MultipleChoiceParams, TokenF1Params, multiple_choice, token_f1
from workers.rewards.extract import OTHER_ANSWERS


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_proposal_for_a_file_is_right_or_the_problem_is_told(tmp_path: Path, case: Brought) -> None:
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
