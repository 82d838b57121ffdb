"""A JSON list: taken apart element by element, whatever stands in the texts; a broken element costs no other."""

from __future__ import annotations

import io
import json
import random
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.parsing import jsonlist
from tests.controlplane.catalogue.datasets.sources import found, in_a_child, report


@pytest.mark.parametrize(
    ("content", "rows", "problems"),
    [
        (b'[{"a": 1}, {"a": 2}]', 2, []),
        (b' [\n {"a": "]},{"} ,\n\n {"a": {"b": [1, {"c": "\\"}"}]}}\n]\n\n', 2, []),
        (b'[{"a": 1}, 3, "x, y", null, [1], {"a": 2}]', 2, [(line, "not_an_object") for line in (2, 3, 4, 5)]),
        (b'[{"a": 1}, {"a": NaN}, {"a": 2}]', 2, [(2, "not_a_number")]),
        (b'[{"a": "1"}, {"a": "\xff"}, {"a": "2"}]', 2, [(2, "invalid_utf8")]),
        (b'[{"a": "1"}, {"a": "\\ud800"}, {"a": "2"}]', 2, [(2, "lone_surrogate")]),
        (b'[{"a": 1}, {"a" 2}, {"a": 3}]', 2, [(2, "malformed_json")]),
        (b'[{"a": 1}, {"a": 2, {"a": 3}, {"a": 4}]', 2, [(2, "malformed_json")]),
        (b'[{"a": "1"}, {"a": "2}, {"a": "3"}]', 2, [(2, "malformed_json")]),
        (b'[{"a": 1}, {"a": 2}', 2, [(3, "cut_off")]),
        (b'[{"a": 1}, {"a": 2', 1, [(2, "malformed_json"), (3, "cut_off")]),
        (b'[{"a": 1}] [{"a": 2}]', 1, [(2, "malformed_json")]),
        (b'[{"a": 1}, {}, {"a": 2}]', 2, [(2, "empty_object")]),
        (b"[" + b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b'}, {"a": []}]', 1, [(1, "nesting")]),
    ],
)
def test_what_is_broken_in_a_list_is_told_and_the_rest_is_read(
    tmp_path: Path, content: bytes, rows: int, problems: list[tuple[int, str]]
) -> None:
    told = report(tmp_path, content)
    assert told["file_error"] is None
    errors = [(p["line"], p["kind"]) for p in told["problems"] if p["kind"] not in ("mixed_schemas", "exact_duplicate")]
    errors = [(line, kind) for line, kind in errors if kind not in ("wrong_type", "missing_field")]
    assert (told["rows"], errors) == (rows, problems)


def test_a_list_that_is_never_opened_again_is_empty(tmp_path: Path) -> None:
    assert report(tmp_path, b"[ ]")["file_error"]["kind"] == "empty_file"


def test_the_place_in_a_row_of_a_list_is_a_byte_of_the_file(tmp_path: Path) -> None:
    content = b'[{"a": "1"},\n {"a": oh}]'
    [problem] = report(tmp_path, content)["problems"]
    assert problem["byte"] == content.index(b"oh")


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
def test_a_list_is_taken_apart_the_same_however_it_is_cut_into_blocks(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(jsonlist, "BLOCK_BYTES", block)
    chance = random.Random(block)
    rows = [
        {"a": "".join(chance.choices('x[]{}",\\ \n', k=chance.randrange(20))), "b": [n, {"c": None}]} for n in range(50)
    ]
    text = json.dumps(rows, indent=chance.choice([None, 1])).encode()
    assert [json.loads(element.raw) for element in jsonlist.elements(io.BytesIO(text))] == rows
    offsets = [element.offset for element in jsonlist.elements(io.BytesIO(text))]
    assert all(text[offset] == ord("{") for offset in offsets)


@pytest.mark.processes
def test_a_large_list_is_never_in_memory(tmp_path: Path) -> None:
    row = json.dumps({"question": "word " * 200, "answer": "1"})
    with (tmp_path / files.SOURCE).open("w") as file:
        file.write("[" + row)
        for n in range(25_000):
            file.write("," + row.replace("word", f"{n}", 1))
        file.write("]")
    child = in_a_child(tmp_path)
    assert child.report is not None
    assert (child.report["rows"], child.report["bad_rows"]) == (25_001, 0)
    assert child.peak_mb < 130
    assert not child.pyarrow


def test_an_element_without_an_end_is_given_up_where_the_next_row_begins(tmp_path: Path) -> None:
    with (tmp_path / files.SOURCE).open("wb") as file:
        file.write(b'[{"question": "')
        for _ in range(20):
            file.write(b"x" * 2**20)
        file.write(b'"}, {"question": "b"}]')
    told = in_a_child(tmp_path)
    assert told.report is not None
    assert found(told.report)[0] == (1, "line_too_long")
    assert told.report["rows"] == 1
