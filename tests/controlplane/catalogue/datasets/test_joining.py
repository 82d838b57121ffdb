"""Several shards as one file."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from controlplane.catalogue.datasets.fetching.choosing import NotFetched
from controlplane.catalogue.datasets.fetching.joining import BLOCK, MAX_BLANK_BLOCKS, join
from controlplane.catalogue.datasets.reader.progress_file import ProgressFile


def joined(folder, kind, *contents, most=10**6):
    shards = []
    for number, content in enumerate(contents):
        path = folder / f"shard{number}"
        path.write_bytes(content)
        shards.append((f"part {number}", path))
    join(shards, kind, folder / "source", most, ProgressFile(folder, "joining", 0))
    assert not any(path.exists() for _, path in shards)
    return (folder / "source").read_bytes()


def test_one_file_stays_as_it_is(tmp_path):
    packed = gzip.compress(b'{"a": 1}\n')
    assert joined(tmp_path, "jsonl", packed) == packed


def test_lines_follow_lines_whatever_each_file_ends_with(tmp_path):
    parts = (b'{"a": 1}', gzip.compress(b'\xef\xbb\xbf{"a": 2}\n'), b"", b'{"a": 3}\n')
    assert joined(tmp_path, "jsonl", *parts) == b'{"a": 1}\n{"a": 2}\n{"a": 3}\n'


def test_json_files_of_lines_are_joined_as_lines(tmp_path):
    assert joined(tmp_path, "json", b'{"a": 1}\n', b'{"a": 2}') == b'{"a": 1}\n{"a": 2}'


def test_blanks_without_end_are_not_read_in_search_of_a_list(tmp_path):
    packed = gzip.compress(b" " * (MAX_BLANK_BLOCKS * BLOCK + 10 * BLOCK) + b"[1]")
    with pytest.raises(NotFetched, match="larger than"):  # as lines, within the limit of any file
        joined(tmp_path, "json", packed, b"{}")


@pytest.mark.parametrize(("kind", "first"), [("csv", b"a,b\n1,2\n"), ("tsv", b"a\tb\n"), ("json", b" \n[1]")])
def test_several_sheets_or_lists_are_refused(tmp_path, kind, first):
    with pytest.raises(NotFetched, match="The split has 2 files, and only JSON Lines or Parquet files can be joined"):
        joined(tmp_path, kind, first, b"{}")


@pytest.mark.parametrize("kind", ["csv", "tsv", "json"])
def test_one_sheet_or_list_stays_as_it_is(tmp_path, kind):
    assert joined(tmp_path, kind, b"[1]") == b"[1]"


def parquet(table):
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def test_parquet_files_are_joined_by_the_names_of_their_columns(tmp_path):
    one, two = pa.table({"a": [1], "b": ["x"]}), pa.table({"b": ["y"], "a": [2]})
    joined(tmp_path, "parquet", parquet(one), parquet(two))
    assert pq.read_table(tmp_path / "source").to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize(
    ("second", "told"),
    [
        (parquet(pa.table({"b": [1]})), "columns of part 1"),
        (b"PAR1 and no more", "can't be read as Parquet"),
        (parquet(pa.table({"a": ["no number"]})), "can't be read as Parquet"),
    ],
)
def test_parquet_files_that_do_not_fit_are_told(tmp_path, second, told):
    with pytest.raises(NotFetched, match=told):
        joined(tmp_path, "parquet", parquet(pa.table({"a": [1]})), second)


def test_a_bomb_is_stopped_at_the_limit(tmp_path):
    bomb = gzip.compress(b"0" * 10**7)
    with pytest.raises(NotFetched, match="larger than"):
        joined(tmp_path, "jsonl", bomb, bomb, most=10**6)
    assert (tmp_path / "source.part").stat().st_size <= 10**6
    assert not (tmp_path / "source").exists()


def test_a_shard_cut_off_is_told(tmp_path):
    with pytest.raises(NotFetched, match="damaged or truncated"):
        joined(tmp_path, "jsonl", b"{}\n", gzip.compress(b"{}\n" * 1000)[:-9])


def test_a_damaged_shard_is_told(tmp_path):
    damaged = bytearray(gzip.compress(bytes(range(256)) * 200))
    damaged[20:40] = b"\xff" * 20
    with pytest.raises(NotFetched, match="damaged or truncated"):
        joined(tmp_path, "jsonl", b"{}\n", bytes(damaged))


def test_extension_types_are_refused_before_arrow_makes_them(tmp_path):
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16)))
    extended = parquet(pa.table({"a": uuids}))
    with pytest.raises(NotFetched, match="extension types"):
        joined(tmp_path, "parquet", extended, extended)


def test_columns_of_one_name_are_refused(tmp_path):
    twice = parquet(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(NotFetched, match="same name"):
        joined(tmp_path, "parquet", twice, twice)
