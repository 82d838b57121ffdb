"""The catalogue against logs: real programs' own, provoked here, and others written from documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.workers.diagnosis.cases import CASES, STYLES, Case, styled
from workers.diagnosis.catalogue import Confidence, entries
from workers.diagnosis.folder import diagnose
from workers.diagnosis.judging import Report


def report_of(folder: Path, case: Case, text: str | None = None) -> Report:
    log = folder / f"{case.role or 'mailed'}.log"
    log.write_text(case.text if text is None else text, encoding="utf-8")
    return diagnose(log)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_right_cause_comes_first(case: Case, tmp_path: Path) -> None:
    report = report_of(tmp_path, case)
    assert [one.id for one in report.diagnoses][:1] == [case.expect]
    first = report.diagnoses[0]
    assert first.lines
    assert first.lines[0].text.split()
    assert not re.search(r"\{\w+\}", first.cause + first.fix)


def test_every_entry_has_a_log() -> None:
    assert set(entries()) == {case.expect for case in CASES}


@pytest.mark.parametrize("style", STYLES)
def test_prefixes_colours_and_progress_bars_change_nothing(style: str, tmp_path: Path) -> None:
    wrong = {}
    for case in CASES:
        first = [one.id for one in report_of(tmp_path, case, styled(case.text, style)).diagnoses][:1]
        if first != [case.expect]:
            wrong[case.name] = first
    assert wrong == {}


def test_a_log_of_unknown_origin_gets_the_same_cause(tmp_path: Path) -> None:
    for case in CASES:
        log = tmp_path / "mailed.log"
        log.write_text(case.text, encoding="utf-8")
        assert [one.id for one in diagnose(log).diagnoses][:1] == [case.expect], case.name


def test_words_name_only_groups_that_a_pattern_has() -> None:
    for entry in entries().values():
        groups = {name for pattern in entry.patterns for name in pattern.groupindex}
        texts = [entry.cause, entry.fix, *(change.value for change in entry.changes)]
        assert {name for text in texts for name in re.findall(r"\{(\w+)\}", text)} <= groups, entry.id


def test_confidence_goes_down_and_no_further() -> None:
    assert Confidence.CERTAIN.lowered() is Confidence.LIKELY
    assert Confidence.LIKELY.lowered(5) is Confidence.POSSIBLE
