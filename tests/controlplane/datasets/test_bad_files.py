"""Every kind of file that is no JSON Lines gets a sentence that says what is wrong, and where."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from controlplane.datasets.models import DatasetVersion
from tests.controlplane.datasets.builders import checked, jsonl, ready

pytestmark = pytest.mark.django_db

GOOD = b'{"prompt": "a", "answer": "b"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b" \n\n\t\n", "only blank lines"),
        ('{"a": "b"}\n'.encode("utf-16"), "UTF-16"),
        ('{"a": "b"}\n'.encode("utf-16-le"), "UTF-16"),
        (b'[{"a": 1}, {"a": 2}]', "one JSON list"),
        (b'[\n  {"a": 1}\n]', "one JSON list"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "PNG image"),
        (b"%PDF-1.7\n", "PDF"),
        (b"PK\x03\x04" + b"\x00" * 50, "ZIP"),
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"PAR1\x15\x04", "Parquet"),
        (b"\x80\x04\x95\x00", "pickle"),
        (b'question,answer\n"a, b","c"\n', "CSV"),
    ],
)
def test_another_format_is_named(content, said):
    version = checked(content)
    assert version.status == DatasetVersion.INVALID
    assert said in version.report["file_error"]


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (b'{"a": "caf\xe9"}', "encoding", "0xe9"),
        (b'{"a": "\\ud800"}', "broken character", "surrogate"),
        (b'{"a": "x\\udc00y"}', "broken character", "surrogate"),
        (b'{"a": "\xed\xa0\x80"}', "encoding", "not UTF-8"),
        (b'{"a": "x\\u0000"}', "NUL character", "NUL"),
        (b'{"a": "x\x00"}', "NUL character", "position 9"),
        (b'{"a": ' + b"[" * 100_000, "nesting", "levels"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nesting", "64 levels"),
        (b'{"a": ' + b"1" * 1_000_000 + b"}", "number", "too large"),
        (b'{"a": 9223372036854775808}', "number", "64 bits"),
        (b'{"a": 1e999}', "number", "too large"),
        (b'{"a": NaN}', "not a number", "NaN"),
        (b'{"a": -Infinity}', "not a number", "NaN"),
        (b'{"a": 1, "a": 2}', "duplicate field", "“a”"),
        (b'{"a": {"b": 1, "b" : 2}}', "duplicate field", "“b”"),
        (b"[1, 2]", "not an object", "a list"),
        (b'"text"', "not an object", "a text"),
        (b"null", "not an object", "null"),
        (b"12", "not an object", "a number"),
        (b"{}", "empty object", "no fields"),
        (b"{'a': 'b'}", "not JSON", "double quotes"),
        (b'{"a": 1} {"a": 2}', "not JSON", "One object a line"),
        (b'{"a": "b"', "incomplete", "not closed"),
        (b"hello", "not JSON", "position 1"),
        (b'{"' + b"n" * 300 + b'": 1}', "field name", "200 characters"),
    ],
)
def test_a_bad_line_is_reported_with_its_number_its_kind_and_an_excerpt(line, kind, said):
    version = checked(GOOD + line + b"\n" + GOOD)
    assert version.status == DatasetVersion.INVALID
    [problem] = version.report["errors"]
    assert (problem["line"], problem["kind"]) == (2, kind)
    assert said in problem["message"]
    assert len(problem["excerpt"]) < 400
    assert version.rows == 2


def test_a_last_line_that_was_cut_off_says_so():
    version = checked(GOOD + b'{"prompt": "a", "answ')
    assert "ends in the middle" in version.report["errors"][0]["message"]


def test_a_byte_order_mark_is_passed_over_with_a_note():
    version = checked(b"\xef\xbb\xbf" + GOOD)
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert "byte order mark" in version.report["notes"][0]


def test_blank_lines_windows_line_ends_and_a_missing_last_newline_are_fine():
    version = checked(GOOD.replace(b"\n", b"\r\n") + b"\n" + GOOD.rstrip())
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert version.rows == 2


def test_texts_with_colons_are_not_mistaken_for_duplicate_fields():
    assert (
        checked(b'{"a": "one: two: three", "b": "{\\"a\\": 1, \\"a\\": 2}"}\n').status == DatasetVersion.NEEDS_MAPPING
    )


def test_one_giant_line_is_one_problem_and_the_rest_is_read():
    version = checked(GOOD + b'{"a": "' + b"x" * (20 * 2**20) + b'"}\n' + GOOD)
    [problem] = version.report["errors"]
    assert (problem["line"], problem["kind"]) == (2, "too long")
    assert version.rows == 2


def test_a_file_of_bad_lines_only_is_given_up_early():
    version = checked(b"{}\n" * 200_000)
    assert version.report["gave_up"]
    assert version.report["error_count"] == 10_000
    assert len(version.report["errors"]) == 20
    assert not version.usable_without_bad_lines


def test_too_many_different_fields_are_refused():
    version = checked(jsonl([{f"field{n}-{i}": 1 for i in range(50)} for n in range(10)]))
    assert "more than 200 different fields" in version.report["file_error"]


def test_the_report_stays_small_however_large_the_rows_are():
    rows = [{f"c{i}": "long text " * 5_000 for i in range(20)} for _ in range(10)]
    version = checked(jsonl(rows))
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert len(json.dumps(version.report)) < 2**20


def test_ten_megabytes_take_little_time_and_memory(tmp_path):
    rows = [{"prompt": f"{n} " + "word " * 20, "answer": str(n)} for n in range(80_000)]
    (tmp_path / "source.jsonl").write_bytes(jsonl(rows))
    # The child reads its own peak: rusage counts what the forked test process held before exec.
    code = (
        "import atexit, runpy\n"
        "atexit.register(lambda: print(open('/proc/self/status').read()))\n"
        "runpy.run_module('controlplane.datasets.validation', run_name='__main__', alter_sys=True)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, tmp_path, "check"], stdout=subprocess.PIPE, text=True)
    with child:
        assert child.stdout is not None
        said = child.stdout.read()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    assert json.loads((tmp_path / "report.json").read_text())["rows"] == 80_000
    assert used.ru_utime < 5  # processor time, not the wall's; under 1 s on a quiet core
    assert int(re.search(r"VmHWM:\s+(\d+) kB", said)[1]) < 200 * 2**10


# --- what only the mapping finds ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"answer": "#### 1"}, "missing field"),
        ({"question": None, "answer": "#### 1"}, "missing field"),
        ({"question": 7, "answer": "#### 1"}, "wrong type"),
        ({"question": {"a": 1}, "answer": "#### 1"}, "wrong type"),
        ({"question": ["a"], "answer": "#### 1"}, "wrong type"),
        ({"question": [], "answer": "#### 1"}, "empty prompt"),
        ({"question": "", "answer": "#### 1"}, "empty prompt"),
        ({"question": " \n", "answer": "#### 1"}, "empty prompt"),
        ({"question": "a"}, "missing field"),
        ({"question": "a", "answer": True}, "wrong type"),
        ({"question": "a", "answer": ["1"]}, "wrong type"),
        ({"question": "a", "answer": "no marker"}, "marker missing"),
        ({"question": "a", "answer": "#### "}, "empty answer"),
    ],
)
def test_a_row_that_the_mapping_does_not_fit_is_named_and_nothing_is_saved(row, kind):
    version = ready([{"question": "good", "answer": "#### 1"}, row])
    assert version.status == DatasetVersion.NEEDS_MAPPING
    assert not version.rows_path.exists()
    [problem] = version.report["mapped"]["errors"]
    assert (problem["line"], problem["kind"]) == (2, kind)


def test_a_field_missing_in_line_57123_is_found_there():
    rows = [{"question": f"q{n}", "answer": "#### 1"} for n in range(57_200)]
    del rows[57_122]["question"]
    [problem] = ready(rows).report["mapped"]["errors"]
    assert problem["line"] == 57_123
    assert "“question” is missing" in problem["message"]


def test_prompts_that_are_all_the_same_bring_a_warning():
    version = ready([{"question": "same", "answer": "#### 1"}] * 20)
    assert version.status == DatasetVersion.READY
    assert "All 20 rows have the same prompt" in version.report["mapped"]["warnings"][0]
