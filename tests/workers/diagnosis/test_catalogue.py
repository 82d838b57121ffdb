"""The catalogue against logs: real programs' own, provoked here, and others written from documentation."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.architecture.patterns import QUICK_S
from tests.architecture.test_patterns import SQUARE
from tests.workers.diagnosis.cases import (
    BAR,
    CASES,
    NOISES,
    STYLES,
    Case,
    documented,
    healthy,
    innocent,
    provoked,
    styled,
)
from workers.diagnosis.catalogue import Confidence, catalogue, entries
from workers.diagnosis.folder import diagnose
from workers.diagnosis.judging import Report
from workers.diagnosis.matching import UNEXPLAINED_ID
from workers.diagnosis.prefixes import _prefix
from workers.diagnosis.scanning import STEM_CONTEXT_BYTES

HOSTILE = (*"a_0$*(", "a.", "a-", "<a", "a ", "A", "a:", " \t")
TRAINING = "".join(f"{BAR.format(n=n)}\n" for n in (3, 4, 5))
UNKNOWN_ERROR = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 9, in <module>\nzorg.GrobError: no teeth\n'
)
LONG = 2 * STEM_CONTEXT_BYTES
"""Characters of the longest line that is searched."""


def report_of(folder: Path, case: Case, text: str | None = None) -> Report:
    log = folder / f"{case.role or 'mailed'}.log"
    log.write_text(case.text if text is None else text, encoding="utf-8")
    return diagnose(log)


@pytest.mark.parametrize("case", [*provoked(), *documented()], ids=lambda case: case.name)
def test_the_right_cause_comes_first(case: Case, tmp_path: Path) -> None:
    report = report_of(tmp_path, case)
    assert [one.id for one in report.diagnoses][:1] == [case.expect]
    first = report.diagnoses[0]
    assert first.lines
    assert first.lines[0].text.split()
    assert not re.search(r"\{\w+\}|\[\[|\]\]", first.cause + first.fix)


def test_every_entry_has_a_log() -> None:
    assert set(entries()) == {case.expect for case in CASES}


@pytest.mark.parametrize("noise", NOISES)
def test_every_cause_is_found_in_the_noise_of_real_logs(noise: str, tmp_path: Path) -> None:
    make: Callable[[str], str] = NOISES[noise]
    wrong = {}
    for case in CASES[list(NOISES).index(noise) % 4 :: 4]:  # each log in a few kinds of noise; the bench takes all
        first = [one.id for one in report_of(tmp_path, case, make(case.text)).diagnoses][:1]
        if first != [case.expect]:
            wrong[case.name] = first
    assert wrong == {}


def test_a_healthy_log_full_of_warnings_has_no_cause(tmp_path: Path) -> None:
    wrong = {}
    for style in ("", *(style for style in STYLES if not style.startswith("vLLM"))):  # these log everything as errors
        for name, text in healthy().items():
            for role in ("", "trainer", "vllm"):
                case = Case(name, "", "written", role, styled(text, style) if style else text)
                if causes := [one.id for one in report_of(tmp_path, case).diagnoses]:
                    wrong[name, style, role] = causes
    assert wrong == {}
    assert len(healthy()) >= 15


def test_no_innocent_line_becomes_a_cause(tmp_path: Path) -> None:
    """Neither alone, nor as the last line of a log that was cut, nor before an error that no entry explains."""
    blamed = {}
    for line in innocent():
        for before, after in (("", ""), (TRAINING, ""), (TRAINING, UNKNOWN_ERROR)):
            text = f"{before}{line}\n{after}"
            for role in ("", "trainer", "vllm"):
                first = report_of(tmp_path, Case("", "", "written", role, text)).diagnoses[:1]
                if any(one.id != UNEXPLAINED_ID for one in first):
                    blamed[line, role, bool(after)] = first[0].id
    assert blamed == {}
    assert len(innocent()) >= 180


def test_the_first_error_is_always_told(tmp_path: Path) -> None:
    without = [
        case.name
        for case in CASES
        if re.search(r"^\w*(?:Error|Exception): ", case.text, re.MULTILINE)
        and not report_of(tmp_path, case).first_errors
    ]
    assert without == []


def test_a_log_of_unknown_origin_gets_the_same_cause(tmp_path: Path) -> None:
    for case in CASES:
        log = tmp_path / "mailed.log"
        log.write_text(case.text, encoding="utf-8")
        assert [one.id for one in diagnose(log).diagnoses][:1] == [case.expect], case.name


def test_words_name_only_groups_that_a_pattern_has() -> None:
    for entry in entries().values():
        groups = {name for pattern in entry.patterns for name in pattern.groupindex}
        groups |= {"layer"} if "*" in entry.follows else set()
        groups |= {"error"} if entry.id == UNEXPLAINED_ID else set()
        texts = [entry.cause, entry.fix, *(change.value for change in entry.changes)]
        assert {name for text in texts for name in re.findall(r"\{(\w+)\}", text)} <= groups, entry.id


def test_words_are_whole_without_the_values_of_groups() -> None:
    for entry in entries().values():
        for text in (entry.cause, entry.fix):
            filled = entry.filled(text, {})
            assert not re.search(r"[{}]|\[\[|\]\]|\|\||…|  | [.,;:]|\(\)| $", filled), (entry.id, filled)
            assert filled.endswith((".", ".)")), (entry.id, filled)


def test_no_entry_is_a_consequence_of_its_own_consequence() -> None:
    for entry in entries().values():
        for cause in set(entry.follows) - {"*"}:
            back = set(entries()[cause].follows)
            assert entry.id not in back, (entry.id, cause)


def seconds_of(pattern: re.Pattern[str], text: str) -> float:
    began = time.process_time()
    _ = pattern.match(text) if pattern is _prefix() else pattern.search(text)
    return time.process_time() - began


def test_no_pattern_of_the_catalogue_is_slow_on_a_long_text() -> None:
    found = [pattern for entry in entries().values() for pattern in (*entry.patterns, *entry.near)]
    slow = []
    for pattern in dict.fromkeys([*found, *catalogue().noise, *catalogue().fallbacks, _prefix()]):
        for unit in HOSTILE:
            text = unit * (LONG // len(unit)) + "!"
            if seconds_of(pattern, text) > QUICK_S:
                longer, shorter = seconds_of(pattern, text), seconds_of(pattern, text[: len(text) // 4] + "!")
                if longer > SQUARE * shorter:
                    slow.append(f"{pattern.pattern!r} with many {unit!r}")
    assert slow == []


def test_confidence_goes_down_and_no_further() -> None:
    assert Confidence.CERTAIN.lowered() is Confidence.LIKELY
    assert Confidence.LIKELY.lowered(5) is Confidence.POSSIBLE
