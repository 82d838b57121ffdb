"""JSON Lines: each line that can't be read is told with its number, its place and an excerpt, and costs no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.checking.report import MAX_UNREADABLE
from controlplane.catalogue.datasets.reader.parsing import jsonlines
from tests.controlplane.catalogue.datasets.sources import GOOD, found, in_a_child, jsonl, report


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        (b'{"a": "caf\xe9"}', "invalid_utf8", "0xe9"),
        (b'{"a": "\xed\xa0\x80"}', "invalid_utf8", "not UTF-8"),
        (b'{"a": "\\ud800"}', "lone_surrogate", "surrogate"),
        (b'{"a": "x\\udc00y"}', "lone_surrogate", "surrogate"),
        (b'{"a": "x\\u0000"}', "nul", "NUL"),
        (b'{"x\\u0000": "a"}', "nul", "name"),
        (b'{"a": ["x\\u0000"]}', "nul", "“a”"),
        (b'{"a": "x\x00"}', "nul", "NUL byte"),
        (b'{"a": ' + b"[" * 100_000, "nesting", "levels"),
        (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nesting", "levels"),
        (b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}", "nesting", "64 levels"),
        (b'{"a": ' + b"1" * 1_000_000 + b"}", "number_range", "too large"),
        (b'{"a": 9223372036854775808}', "number_range", "64 bits"),
        (b'{"a": [-9223372036854775809]}', "number_range", "64 bits"),
        (b'{"a": 1e999}', "number_range", "too large"),
        (b'{"a": NaN}', "not_a_number", "NaN"),
        (b'{"a": -Infinity}', "not_a_number", "Infinity"),
        (b"[1, 2]", "not_an_object", "a list"),
        (b'"text"', "not_an_object", "a string"),
        (b"null", "not_an_object", "null"),
        (b"true", "not_an_object", "a boolean"),
        (b"12", "not_an_object", "a number"),
        (b"{}", "empty_object", "no fields"),
        (b"{'a': 'b'}", "malformed_json", "double quotes"),
        (b'{"a": 1} {"a": 2}', "malformed_json", "Write one object per line"),
        (b'{"a": 1},', "malformed_json", "Write one object per line"),
        (b'{"a": "b"', "cut_off", "complete"),
        (b"hello", "malformed_json", "byte 33"),
        (b'{"' + b"n" * 300 + b'": 1}', "field_name", "200 characters"),
    ],
)
def test_a_bad_line_is_told_of_and_the_others_are_read(tmp_path: Path, line: bytes, kind: str, said: str) -> None:
    told = report(tmp_path, GOOD + line + b"\n" + GOOD.replace(b'"a"', b'"c"'))
    [problem] = told["problems"]
    assert (problem["line"], problem["kind"]) == (2, kind)
    assert said in problem["message"]
    assert len(problem["excerpt"]) < 400
    assert "\x00" not in problem["excerpt"]
    assert (told["rows"], told["bad_rows"], told["lines"], told["file_error"]) == (2, 1, 3, None)
    [listed] = (tmp_path / files.PROBLEMS).read_text().splitlines()
    assert json.loads(listed) == problem
    [counted] = told["kinds"]
    assert (counted["kind"], counted["count"], counted["level"]) == (kind, 1, "error")
    assert counted["title"]
    assert counted["advice"]


def test_the_place_of_a_mistake_is_told_as_a_column_and_as_a_byte_of_the_file(tmp_path: Path) -> None:
    told = report(tmp_path, GOOD + '{"question": "ä", "answer": wrong}\n'.encode())
    [problem] = told["problems"]
    assert (problem["line"], problem["column"]) == (2, 29)
    assert problem["byte"] == len(GOOD) + 29
    assert f"byte {len(GOOD) + 29}" in problem["message"]


def test_bytes_are_those_of_the_file_and_not_of_the_block(tmp_path: Path) -> None:
    before = GOOD * (2 * jsonlines.BLOCK_BYTES // len(GOOD))
    [problem] = [p for p in report(tmp_path, before + b"oh\n" + GOOD)["problems"] if p["kind"] == "malformed_json"]
    assert (problem["line"], problem["byte"]) == (len(before) // len(GOOD) + 1, len(before))


def test_a_last_line_that_was_cut_off_says_so(tmp_path: Path) -> None:
    assert found(report(tmp_path, GOOD + b'{"question": "a", "answ')) == [(2, "cut_off")]


def test_a_byte_order_mark_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    told = report(tmp_path, b"\xef\xbb\xbf" + GOOD)
    assert (told["rows"], told["bad_rows"], found(told)) == (1, 0, [(1, "byte_order_mark")])
    assert told["kinds"][0]["level"] == "warning"
    assert "byte order mark" in told["format"]["note"]


def test_blank_lines_windows_line_ends_and_a_missing_last_newline_are_fine(tmp_path: Path) -> None:
    one, two = GOOD.replace(b"\n", b"\r\n"), GOOD.replace(b'"a"', b'"c"').rstrip()
    told = report(tmp_path, one + b"\n \t\r\n" + two)
    assert (told["rows"], told["blank"], told["lines"], told["problems"]) == (2, 2, 4, [])


def test_two_rows_on_one_line_are_a_mistake_even_where_a_blank_line_makes_up_for_it(tmp_path: Path) -> None:
    told = report(tmp_path, GOOD + GOOD.strip() + GOOD + b"\n" + GOOD)
    assert (2, "malformed_json") in found(told)
    assert told["blank"] == 1


def test_a_line_that_is_too_long_is_one_problem_and_costs_no_memory(tmp_path: Path) -> None:
    with (tmp_path / files.SOURCE).open("wb") as file:
        file.write(GOOD + b'{"question": "')
        for _ in range(50):
            file.write(b"x" * 2**20)
        file.write(b'"}\n' + GOOD.replace(b'"a"', b'"c"'))
    child = in_a_child(tmp_path)
    assert child.report is not None
    assert child.report["rows"] == 2
    [problem] = child.report["problems"]
    assert (problem["line"], problem["kind"]) == (2, "line_too_long")
    assert "52,428,8" in problem["message"]
    assert child.peak_mb < 120
    assert not child.pyarrow


@pytest.mark.processes
def test_a_line_of_a_gigabyte_that_takes_no_room_on_the_disk_is_told_of(tmp_path: Path) -> None:
    with (tmp_path / files.SOURCE).open("wb") as file:
        file.write(GOOD + b'{"question": "' + b"x" * 100_000)
        file.seek(2**30, 1)
        file.write(b'"}\n' + GOOD)
    told = in_a_child(tmp_path)
    assert told.report is not None
    assert (2, "line_too_long") in found(told.report)
    assert told.report["lines"] == 3
    assert told.peak_mb < 120


def test_a_file_of_bad_lines_is_given_up(tmp_path: Path) -> None:
    told = report(tmp_path, b"{}\n" * (MAX_UNREADABLE + 5000))
    assert told["gave_up"]
    assert MAX_UNREADABLE <= told["kinds"][0]["count"] <= MAX_UNREADABLE + 1
    assert len(told["problems"]) == 1000
    assert told["listed"] == told["kinds"][0]["count"]


def test_one_kind_of_problem_does_not_hide_the_others(tmp_path: Path) -> None:
    told = report(tmp_path, b"{}\n" * 3000 + b"[]\n" + GOOD)
    assert len(told["problems"]) == 1000
    assert (3001, "not_an_object") in found(told)


def test_too_many_different_fields_are_refused(tmp_path: Path) -> None:
    rows = [{f"field{n}-{i}": 1 for i in range(50)} for n in range(10)]
    told = report(tmp_path, jsonl(rows))
    assert told["file_error"]["kind"] == "too_many_columns"
    assert "200 different fields" in told["file_error"]["message"]


def test_the_report_stays_small_however_large_the_rows_are(tmp_path: Path) -> None:
    rows = [{f"c{i}": "long text " * 5_000 for i in range(20)} for _ in range(10)]
    assert len(json.dumps(report(tmp_path, jsonl(rows)))) < 2**18


def test_names_with_quotes_and_backslashes_are_read(tmp_path: Path) -> None:
    told = report(tmp_path, jsonl([{"question": "a", 'an "odd" name': n, "back\\slash": 1} for n in range(3)]))
    assert (told["rows"], told["bad_rows"]) == (3, 0)
    assert [column["name"] for column in told["columns"]] == ["question", 'an "odd" name', "back\\slash"]


@pytest.mark.processes
def test_ten_megabytes_take_little_time_and_memory(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} " + "word " * 20, "answer": str(n)} for n in range(80_000)]
    (tmp_path / files.SOURCE).write_bytes(jsonl(rows))
    child = in_a_child(tmp_path)
    assert child.code == 0, child.errors
    assert child.report is not None
    assert child.report["rows"] == 80_000
    assert child.report["passes"][0]["mb_per_s"] > 0
    assert child.peak_mb < 200


def test_progress_is_told_while_the_file_is_read(tmp_path: Path) -> None:
    report(tmp_path, GOOD)
    said = json.loads((tmp_path / files.PROGRESS).read_text())
    assert said["of"] == len(GOOD)
    assert said["stage"] in ("first pass", "second pass")
    assert not list(tmp_path.glob("*.part"))
