"""Parquet: its footer is believed only as far as it is true, columns are read by their types, nothing in it is run."""

from __future__ import annotations

import base64
import gzip
import pickle
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from controlplane.catalogue.datasets.reader.parsing import unpacking
from tests.controlplane.catalogue.datasets.sources import found, in_a_child, parquet, report, rows

QUESTIONS = {"question": [f"q{n}" for n in range(9)], "answer": [str(n) for n in range(9)]}


class Foreign(pa.ExtensionType):
    def __init__(self) -> None:
        super().__init__(pa.string(), "tests.foreign")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: bytes) -> Foreign:
        raise AssertionError("the file's type was made")


def test_plain_and_nested_columns_become_json(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "hi"}]
    table = pa.table(
        {
            "prompt": [messages],
            "level": pa.array(["easy"]).dictionary_encode(),
            "score": [float("nan")],
            "when": pa.array([0], pa.timestamp("s")),
            "price": pa.array(["1.50"]).cast(pa.decimal128(5, 2)),
            "tests": [["assert f() == 1"]],
            "nothing": pa.nulls(1),
        }
    )
    [row] = rows(tmp_path, parquet(table))
    assert row == {
        "prompt": messages,
        "level": "easy",
        "score": None,
        "when": "1970-01-01T00:00:00",
        "price": "1.50",
        "tests": ["assert f() == 1"],
        "nothing": None,
    }


def test_compressed_parquet_is_read(tmp_path: Path) -> None:
    assert len(rows(tmp_path, gzip.compress(parquet(QUESTIONS)))) == 9
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (pa.array([[("a", 1)]] * 9, pa.map_(pa.string(), pa.int64())), "map<string"),
        (pa.array([b"\x00\xff"] * 9), "binary"),
        (pa.array([1] * 9, pa.duration("s")), "duration"),
        (pa.array([[[b"a"]]] * 9), "binary"),
    ],
)
def test_a_column_that_json_has_no_values_for_is_passed_over_with_a_word(
    tmp_path: Path, column: pa.Array, said: str
) -> None:
    told = report(tmp_path, parquet({**QUESTIONS, "odd": column}))
    assert found(told) == [(0, "passed_over_column")]
    assert said in told["problems"][0]["message"]
    assert (told["rows"], told["bad_rows"]) == (9, 0)
    assert [column["name"] for column in told["columns"]] == ["question", "answer"]


def test_columns_nested_too_deeply_are_passed_over(tmp_path: Path) -> None:
    kind: pa.DataType = pa.string()
    for _ in range(12):
        kind = pa.list_(kind)
    told = report(tmp_path, parquet({**QUESTIONS, "deep": pa.nulls(9, kind)}))
    assert found(told) == [(0, "passed_over_column")]


def test_a_file_without_any_column_to_read_is_refused(tmp_path: Path) -> None:
    error = report(tmp_path, parquet({"odd": pa.array([b"a"])}))["file_error"]
    assert error["kind"] == "refused_parquet"
    assert "“odd”" in error["message"]


def test_extension_types_are_refused_before_any_is_made(tmp_path: Path) -> None:
    pa.register_extension_type(Foreign())
    try:
        content = parquet({"a": pa.ExtensionArray.from_storage(Foreign(), pa.array(["x"]))})
        error = report(tmp_path, content)["file_error"]
    finally:
        pa.unregister_extension_type("tests.foreign")
    assert error["kind"] == "refused_parquet"
    assert "extension types" in error["message"]


class Evil:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("/nowhere/else"),))


@pytest.mark.parametrize("encode", [bytes, base64.b64encode])
def test_a_pickle_in_the_metadata_is_refused(tmp_path: Path, encode: Any) -> None:
    table = pa.table(QUESTIONS).replace_schema_metadata({b"python": encode(pickle.dumps(Evil()))})
    error = report(tmp_path, parquet(table))["file_error"]
    assert error["kind"] == "refused_parquet"
    assert "pickle" in error["message"]


def test_the_metadata_of_pandas_and_of_the_hub_is_fine(tmp_path: Path) -> None:
    table = pa.table(QUESTIONS).replace_schema_metadata({b"pandas": b"{}", b"huggingface": b'{"info": {}}'})
    assert report(tmp_path, parquet(table))["rows"] == 9


@pytest.mark.parametrize(
    ("cut", "said"),
    [(-4, "is incomplete"), (-100, "is incomplete"), (100, "is incomplete"), (8, "is incomplete")],
)
def test_a_file_that_was_cut_off_says_so(tmp_path: Path, cut: int, said: str) -> None:
    error = report(tmp_path, parquet(QUESTIONS)[:cut])["file_error"]
    assert error["kind"] == "broken_parquet"
    assert said in error["message"]


@pytest.mark.parametrize("length", [0, 10, 2**20, 2**31 - 1, 2**32 - 1])
def test_a_footer_that_lies_about_its_size_is_not_believed(tmp_path: Path, length: int) -> None:
    content = parquet(QUESTIONS)
    error = report(tmp_path, content[:-8] + length.to_bytes(4, "little") + b"PAR1")["file_error"]
    assert error["kind"] == "broken_parquet"


def test_a_damaged_page_costs_its_row_group_only(tmp_path: Path) -> None:
    content = bytearray(parquet(QUESTIONS, row_group_size=3, compression="none", use_dictionary=False))
    content[4:24] = b"\xff" * 20
    told = report(tmp_path, bytes(content))
    assert (told["rows"], told["file_error"]) == (6, None)
    [problem] = told["problems"]
    assert (problem["line"], problem["kind"]) == (1, "damaged_rows")
    assert "Rows 1 to 3" in problem["message"]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_no_byte_that_is_wrong_ends_the_child_without_a_word(tmp_path: Path, compression: str) -> None:
    content = parquet({"question": ["some text " * 5] * 40}, compression=compression, row_group_size=10)
    for place in range(4, len(content) - 4, max(1, len(content) // 60)):
        broken = bytearray(content)
        broken[place] ^= 0xFF
        told = report(tmp_path, bytes(broken))
        assert told["file_error"] or told["problems"] or told["rows"] == 40


def test_text_that_is_no_utf8_is_told_by_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"caf\xe9", b"fine"]).view(pa.string())
    told = report(tmp_path, parquet({"question": texts}))
    assert found(told) == [(2, "invalid_utf8")]
    assert (told["rows"], told["bad_rows"]) == (2, 1)


@pytest.mark.processes
def test_a_huge_row_group_stays_within_the_limits(tmp_path: Path) -> None:
    texts = [secrets.token_hex(1000) * 100 for _ in range(1500)]
    pq = parquet({"question": texts}, compression="zstd", row_group_size=1500)
    (tmp_path / "source").write_bytes(pq)
    child = in_a_child(tmp_path)
    assert child.code == 0, child.errors
    assert child.report is not None
    assert child.report["rows"] == 1500 or child.report["file_error"]["kind"] == "limits"


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["q", "q"])
    assert report(tmp_path, parquet(table))["file_error"]["kind"] == "refused_parquet"


@pytest.mark.parametrize(("count", "kind"), [(2_000_000, "too_large"), (20_000_001, "too_many_rows")])
def test_millions_of_empty_rows_in_a_tiny_file_are_refused_unread(tmp_path: Path, count: int, kind: str) -> None:
    error = report(tmp_path, parquet({"question": pa.nulls(count, pa.string())}))["file_error"]
    assert error["kind"] == kind


def test_neither_are_they_where_the_file_is_only_large_once_it_is_unpacked(tmp_path: Path) -> None:
    content = parquet({"question": pa.nulls(2_000_000, pa.string())})
    footer = 8 + int.from_bytes(content[-8:-4], "little")
    padded = gzip.compress(content[:-footer] + bytes(2_000_000) + content[-footer:])
    assert len(padded) < 100_000
    error = report(tmp_path, padded)["file_error"]
    assert error["kind"] == "too_large"
    assert "2,000,000 rows" in error["message"]


LONG = "x" * 4_000
SMALL_BUT_LONG = {
    "a text": lambda count: pa.array([LONG] * count),
    "a dictionary": lambda count: pa.array([LONG] * count).dictionary_encode(),
    "lists": lambda count: pa.array([[LONG, LONG]] * (count // 2)),
    "a dictionary in lists": lambda count: pa.ListArray.from_arrays(
        list(range(0, count + 1, 2)), pa.array([LONG] * count).dictionary_encode()
    ),
    "structs": lambda count: pa.array([{"a": LONG, "b": None}] * count),
    "numbers": lambda count: pa.array([[7] * 500] * count),
}


@pytest.mark.parametrize("kind", SMALL_BUT_LONG)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_tiny_file_of_long_equal_values_is_refused_before_it_fills_a_disk(
    tmp_path: Path, kind: str, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "RATIO_FROM", 2**19)
    content = pack(parquet({"question": SMALL_BUT_LONG[kind](2000)}))
    assert len(content) < 20_000
    error = report(tmp_path, content)["file_error"]
    assert error["kind"] == "too_large"
    assert "200 times" in error["message"]


def test_the_same_values_are_fine_where_they_are_few(tmp_path: Path) -> None:
    assert report(tmp_path, parquet({"question": [LONG] * 1000}))["file_error"] is None
