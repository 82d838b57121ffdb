"""Datasets in the formats that people bring: proposed mappings, mapped rows and reported problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks._brought import CASES, Brought, tried
from workers.rewards.entries.answer import ExactMatchParams, exact_match
from workers.rewards.entries.choice import MultipleChoiceParams, multiple_choice


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_proposal_for_a_file_is_right_or_the_problem_is_told(tmp_path: Path, case: Brought) -> None:
    assert tried(tmp_path, case) == ""


def test_the_best_of_several_right_answers_counts() -> None:
    row = {"answer": "New York", "other_answers": ["NYC"]}
    assert [exact_match(text, row, ExactMatchParams()) for text in ("nyc", "new york", "Boston")] == [1.0, 1.0, 0.0]
    assert multiple_choice("<answer>C</answer>", {"answer": ["A", "C"]}, MultipleChoiceParams()) == 1.0


def test_a_value_that_no_row_has_is_never_proposed(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"prompt": [{"role": "user", "content": f"q{n}"}], "answer": None} for n in range(9)]
    case = Brought("", json.dumps(rows).encode(), {"prompt": "prompt", "answer": ""})
    assert tried(tmp_path, case) == ""
