"""Pages of rows in short: any of them by one read, whatever the rows hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import excerpt
from controlplane.catalogue.datasets.reader.versions import shown


def a_row(number: int, **changes: Any) -> dict[str, Any]:
    prompt = [{"role": "user", "content": f"What is {number} plus {number}?"}]
    row = {"row_id": number, "prompt": prompt, "answer": str(2 * number), "test_cases": [], "metadata": {}}
    return {**row, "split": "train", **changes}


def written(folder: Path, rows: list[dict[str, Any]]) -> None:
    writer = shown.ShortRowWriter(folder)
    for row in rows:
        writer.add(row)
    writer.finish()


def test_any_page_is_read_and_the_last_one_ends(tmp_path: Path) -> None:
    written(tmp_path, [a_row(n) for n in range(10_001)])
    assert [row["row_id"] for row in shown.page(tmp_path, 0, 3)] == [0, 1, 2]
    assert [row["row_id"] for row in shown.page(tmp_path, 4_095, 3)] == [4_095, 4_096, 4_097]
    assert [row["row_id"] for row in shown.page(tmp_path, 9_999, 50)] == [9_999, 10_000]
    assert shown.page(tmp_path, 10_001, 50) == []


def test_without_rows_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        shown.page(tmp_path, 0, 1)


def test_what_is_long_or_hostile_is_short_and_harmless(tmp_path: Path) -> None:
    long = a_row(0, answer="x" * 100_000, metadata={"a\u202eb": ["\x00\x07", "line\nbreak", {"deep": "é" * 9_000}]})
    wide = a_row(1, metadata={f"column {n}": n for n in range(5_000)})
    written(tmp_path, [long, wide, a_row(2)])
    first, second, third = shown.page(tmp_path, 0, 3)
    assert first["answer"].endswith("x…")
    assert len(first["answer"]) <= 2_001
    assert list(first["metadata"]) == ["a\ufffdb"]
    assert first["metadata"]["a\ufffdb"][:2] == ["\ufffd\ufffd", "line\nbreak"]
    assert second == {"row_id": 1, "too_large": True}
    assert third["row_id"] == 2


def test_what_is_not_finished_is_not_there(tmp_path: Path) -> None:
    writer = shown.ShortRowWriter(tmp_path)
    writer.add(a_row(0))
    assert not (tmp_path / files.SHOWN_ROWS_FILE).exists()
    writer.close()
    assert list(tmp_path.iterdir()) == []


def test_an_excerpt_of_a_record_over_several_lines_is_one_line() -> None:
    assert excerpt(b'{\n  "question": 7,\r\n  "answer": "x\x07"\n}\n') == '{ "question": 7, "answer": "x\ufffd" }'
