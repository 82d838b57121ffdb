"""CSV and TSV: quotes, line breaks in cells, rows of another length; each told by the line it begins in."""

from __future__ import annotations

from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader.parsing import tables
from tests.controlplane.catalogue.datasets.sources import found, report, rows

HEAD = b"question,answer\n"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (HEAD + b'"a, b",c\n', [{"question": "a, b", "answer": "c"}]),
        (HEAD + b'"a\nb","say ""c"""\r\n', [{"question": "a\nb", "answer": 'say "c"'}]),
        (b"question;answer\na;b\n", [{"question": "a", "answer": "b"}]),
        (b"question\tanswer\na, b\tc\n", [{"question": "a, b", "answer": "c"}]),
        (b"\xef\xbb\xbf" + HEAD + b"a,b", [{"question": "a", "answer": "b"}]),
        (b"question,question,\na,b,c\n", [{"question": "a", "question_2": "b", "column_3": "c"}]),
        (HEAD + b"\n\na,b\n\n", [{"question": "a", "answer": "b"}]),
        (HEAD + b"=cmd|' /C calc'!A0,2\n", [{"question": "=cmd|' /C calc'!A0", "answer": "2"}]),
        ("question,answer\nä,ö\n".encode(), [{"question": "ä", "answer": "ö"}]),
    ],
)
def test_a_table_is_read_as_it_is_written(tmp_path: Path, content: bytes, expected: list[dict[str, str]]) -> None:
    assert rows(tmp_path, content) == expected


@pytest.mark.parametrize(
    ("bad", "kind", "said"),
    [
        (b"one\n", "field_count", "1 field; the table has 2 fields"),
        (b"one,two,three\n", "field_count", "3 fields"),
        (b'"never closed,2\n', "unclosed_quote", "quote"),
        (b'"a"b,2\n', "unclosed_quote", "closing quote"),
        (b"caf\xe9,2\n", "invalid_utf8", "0xe9"),
        (b"a\x00,2\n", "nul", "NUL"),
        (b"x" * (tables.MAX_FIELD_CHARACTERS + 10) + b",2\n", "field_too_long", "field"),
        (b"x," * tables.MAX_LINE_BYTES + b"\n", "line_too_long", "line"),
    ],
)
def test_a_bad_row_is_told_and_the_others_are_read(tmp_path: Path, bad: bytes, kind: str, said: str) -> None:
    told = report(tmp_path, HEAD + b'"a\n1",b\n' + bad + b"c,d\ne,f\n")
    assert found(told) == [(4, kind)]
    assert said in told["problems"][0]["message"]
    assert (told["rows"], told["bad_rows"], told["file_error"]) == (3, 1, None)
    assert len(told["problems"][0]["excerpt"]) < 200


def test_a_cell_with_a_quote_that_is_closed_rows_later_costs_its_own_row_only(tmp_path: Path) -> None:
    told = report(tmp_path, HEAD + b'"a,1\nb,2\nc,3\n"d",4\ne,5\n')
    assert (2, "unclosed_quote") in found(told)
    assert told["rows"] == 4


def test_quotes_that_never_match_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_REREAD_BYTES", 10_000)
    told = report(tmp_path, HEAD + b'"a,1\n' * 2001)
    assert told["file_error"]["kind"] == "limits"
    assert "CSV library" in told["file_error"]["advice"]


def test_five_thousand_columns_are_refused(tmp_path: Path) -> None:
    names = ",".join(f"c{n}" for n in range(5000)).encode()
    error = report(tmp_path, names + b"\n" + b"1," * 4999 + b"1\n")["file_error"]
    assert error["kind"] == "too_many_columns"
    assert "5,000" in error["message"]


def test_a_table_with_only_its_header_has_no_row(tmp_path: Path) -> None:
    assert report(tmp_path, HEAD)["file_error"]["kind"] == "empty_file"


def test_a_missing_cell_is_an_empty_field_of_its_row(tmp_path: Path) -> None:
    told = report(tmp_path, HEAD + b"a,b\n,c\nd,e\n")
    assert found(told) == [(3, "empty_field")]
    assert told["problems"][0]["field"] == "question"
