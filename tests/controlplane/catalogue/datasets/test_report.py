"""What a report counts, lists and gives up at: rows that no mapping can use, and rows that only one can't."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking import report as reports
from controlplane.catalogue.datasets.reader.checking.report import MAPPING_KINDS, Collector
from controlplane.catalogue.datasets.reader.problems import ERROR, KINDS, DataProblem
from controlplane.catalogue.datasets.reader.versions import import_rows
from tests.controlplane.catalogue.datasets.sources import jsonl, report

NO_ANSWER = [{"question": f"What is {n}?", "answer": None if n % 2 else str(n)} for n in range(40)]
TWICE = b'{"question": "Which one?", "answer": "1", "answer": "2"}\n'


def listed(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / files.PROBLEMS).read_bytes().splitlines()]


def test_rows_that_only_the_guessed_mapping_does_not_fit_are_counted_to_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_UNREADABLE", 5)
    told = report(tmp_path, jsonl(NO_ANSWER))
    assert (told["bad_rows"], told["broken_rows"], told["unfit_rows"]) == (20, 0, 20)
    assert (told["gave_up"], told["rows"], len(told["passes"])) == (False, 40, 2)


def test_rows_that_can_not_be_read_end_the_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MAX_UNREADABLE", 5)
    told = report(tmp_path, jsonl(NO_ANSWER) + b"broken\n" * 9)
    assert (told["gave_up"], told["broken_rows"], told["unfit_rows"]) == (True, 5, 20)


def test_an_answer_that_most_rows_lack_is_not_proposed_beside_a_full_solution(tmp_path: Path) -> None:
    rows = [{"problem": f"{n}?", "answer": None if n % 10 else "1", "solution": f"It is {n}"} for n in range(50)]
    told = report(tmp_path, jsonl(rows))
    assert (told["recognised"]["mapping"]["answer"], told["bad_rows"]) == ("solution", 0)


def test_blank_texts_fill_no_column(tmp_path: Path) -> None:
    told = report(tmp_path, b"problem,answer,solution\n" + b"1+1, ,2\n" * 20)
    assert told["recognised"]["mapping"]["answer"] == "solution"


def test_bad_rows_are_each_counted_once_wherever_they_stand(tmp_path: Path) -> None:
    with Collector(tmp_path / "problems") as collector:
        for line in (0, 1, 1, 65_535, 65_536, 65_537, 10_000_000_000):
            collector.add(DataProblem(line, "missing_field", ""))
        for line in (0, 1, 65_537, 70_000):
            collector.add(DataProblem(line, "duplicate_keys", ""))
        collector.add(DataProblem(5, "exact_duplicate", ""))
    told = collector.as_dict()
    assert (told["bad_rows"], told["broken_rows"], told["unfit_rows"]) == (6, 3, 3)


def test_what_an_import_finds_itself_is_listed_up_to_a_bound_and_the_rest_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MAX_LISTED", 3)
    told = report(tmp_path, jsonl(NO_ANSWER) + b"broken\n" + TWICE)
    said = listed(tmp_path)
    assert [one["kind"] for one in said] == ["missing_field"] * 3 + ["malformed_json", "duplicate_keys"]
    assert [bool(one["excerpt"]) for one in said] == [True, True, True, False, False]
    assert (told["listed"], told["unfit_rows"], told["broken_rows"]) == (5, 20, 2)
    made = import_rows.run(tmp_path, {"mapping": {"prompt": "question"}, "split": {"share": 0}})
    assert (made["usable"], made["rows"], made["bad_rows"]) == (True, 40, 2)


def test_bad_rows_and_rows_that_do_not_fit_are_left_out_by_a_word_each(tmp_path: Path) -> None:
    report(tmp_path, jsonl(NO_ANSWER) + TWICE)
    mapping = {"prompt": "question", "answer": "answer"}

    def usable(leave_out: bool, **changed: str) -> bool:
        asked = {"mapping": mapping | changed | {"leave_out": leave_out}, "split": {"share": 0}}
        return bool(import_rows.run(tmp_path, asked)["usable"])

    assert not usable(leave_out=False)
    assert usable(leave_out=False, answer="")
    assert usable(leave_out=True)


def test_kinds_that_depend_on_the_mapping_are_errors_of_one_row() -> None:
    assert {KINDS[kind].level for kind in MAPPING_KINDS} == {ERROR}


def test_every_kind_is_shown_however_many_kinds_there_are(tmp_path: Path) -> None:
    kinds = list(KINDS)
    assert len(kinds) * reports.QUOTA_PER_KIND > reports.MAX_REPORTED
    with Collector(tmp_path / "problems") as found:
        for kind in kinds:
            for line in range(reports.QUOTA_PER_KIND):
                found.add(DataProblem(line + 1, kind, ""))
        report = found.as_dict()
    assert {problem["kind"] for problem in report["problems"]} == set(kinds)
    assert len(report["problems"]) == reports.MAX_REPORTED
