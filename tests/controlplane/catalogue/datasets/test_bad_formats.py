"""What a file is, is told from its content; what is no dataset is named, and a bomb is not unpacked."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path

import pytest

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.parsing import formats, unpacking
from controlplane.catalogue.datasets.reader.parsing.formats import FileFormat
from tests.controlplane.catalogue.datasets.sources import GOOD, found, in_a_child, parquet, report


def zipped(**entries: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name.replace("__", "/"), content)
    return out.getvalue()


def tarred() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        entry = tarfile.TarInfo("../../outside")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (b"", "empty_file", "is empty"),
        (b" \n\n\t\n", "empty_file", "only blank lines"),
        (b"\xef\xbb\xbf", "empty_file", "is empty"),
        ('{"a": "b"}\n'.encode("utf-16"), "other_encoding", "UTF-16"),
        ('{"a": "b"}\n'.encode("utf-16-le"), "other_encoding", "UTF-16"),
        ('{"a": "b"}\n'.encode("utf-32"), "other_encoding", "UTF-32"),
        (b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "other_format", "PNG image"),
        (b"%PDF-1.7\n", "other_format", "PDF"),
        (zipped(a=b"x"), "other_format", "ZIP"),
        (zipped(xl__workbook=b"x"), "other_format", "Excel"),
        (zipped(archive__data=b"x" * 10) + b"archive/data.pkl", "other_format", "PyTorch"),
        (tarred(), "other_format", "tar archive"),
        (gzip.compress(tarred()), "other_format", "tar archive"),
        (gzip.compress(gzip.compress(GOOD)), "other_format", "twice"),
        (gzip.compress(zipped(a=b"x")), "other_format", "ZIP"),
        (pickle.dumps({"a": [1, 2]}), "other_format", "pickle"),
        (pickle.dumps({"a": [1, 2]}, protocol=0), "other_format", "pickle"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '|O'", "other_format", "NumPy"),
        (b"\x28\xb5\x2f\xfd1234", "other_format", "zstd"),
        (b"\x7fELF\x02\x01", "other_format", "program"),
        (b"<!doctype html><p>hi", "other_format", "HTML"),
        (b"\x01\x02\x03\x04\x05\x06\x07\x08" * 10, "other_format", "unknown format"),
        (b"once upon a time there was\nmore of it\n", "other_format", "column names in its first line"),
        (b'{"train": [{"a": 1}],\n "test": [{"a": 2}]}\n', "other_format", "“train” and “test”"),
    ],
)
def test_what_is_no_dataset_is_named(tmp_path: Path, content: bytes, kind: str, said: str) -> None:
    told = report(tmp_path, content)
    error = told["file_error"]
    assert error["kind"] == kind
    assert said in error["message"]
    assert error["advice"]
    assert told["rows"] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted((files.SOURCE, files.REPORT, files.PROBLEMS))


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (GOOD, FileFormat("jsonl")),
        (b"not json\n" + GOOD * 3, FileFormat("jsonl")),
        (b"[1]\n[2]\n", FileFormat("jsonl", is_bare=True)),
        (b'"a"\n"b"\n', FileFormat("jsonl", is_bare=True)),
        (b'[{"a": 1}, {"a": 2}]', FileFormat("json")),
        (b'[\n  {"a": 1}\n]', FileFormat("json")),
        (b'  [\n{"a": 1},\n{"a": 2}]\n', FileFormat("json")),
        (b'question,answer\n"a, b","c"\n', FileFormat("csv")),
        (b"question;answer\na, b;c\n", FileFormat("csv", delimiter=";")),
        (b"question\tanswer\na, b\tc\n", FileFormat("tsv", delimiter="\t")),
        (b"question\nwhat is this\n", FileFormat("csv")),
        (gzip.compress(GOOD), FileFormat("jsonl", gzip=True)),
        (gzip.compress(b'[{"a": 1}]'), FileFormat("json", gzip=True)),
        (gzip.compress(b"a,b\n1,2\n"), FileFormat("csv", gzip=True)),
        (parquet({"a": [1]}), FileFormat("parquet")),
        (gzip.compress(parquet({"a": [1]})), FileFormat("parquet", gzip=True)),
    ],
)
def test_a_file_is_what_its_content_is(tmp_path: Path, content: bytes, kind: FileFormat) -> None:
    (tmp_path / "named.xlsx").write_bytes(content)
    assert formats.detect(tmp_path / "named.xlsx") == kind


def test_one_row_is_a_dataset(tmp_path: Path) -> None:
    told = report(tmp_path, GOOD.rstrip())
    assert (told["rows"], told["bad_rows"], told["file_error"]) == (1, 0, None)


def test_a_gzip_file_of_several_parts_is_read_through(tmp_path: Path) -> None:
    parts = [GOOD.replace(b'"a"', b'"%d"' % n) for n in range(3)]
    told = report(tmp_path, b"".join(map(gzip.compress, parts)) + b"\0" * 512)
    assert (told["rows"], told["file_error"]) == (3, None)


@pytest.mark.parametrize("cut", [4, 15, 30, -4, -12])
def test_a_gzip_file_that_was_cut_off_says_so(tmp_path: Path, cut: int) -> None:
    error = report(tmp_path, gzip.compress(GOOD * 1000)[:cut])["file_error"]
    assert error["kind"] == "broken_gzip"
    assert "is truncated" in error["message"]


def test_a_damaged_gzip_file_says_so(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(GOOD * 1000))
    content[-6] ^= 0xFF  # of the checksum
    error = report(tmp_path, bytes(content))["file_error"]
    assert error["kind"] == "broken_gzip"
    assert "damaged" in error["message"]


def test_rubbish_behind_gzip_is_damage(tmp_path: Path) -> None:
    assert report(tmp_path, gzip.compress(GOOD) + b"rubbish")["file_error"]["kind"] == "broken_gzip"


def bomb(path: Path, unpacked: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    with path.open("wb") as file:
        file.write(packer.compress(GOOD))
        piece = b" " * 2**20
        for _ in range(unpacked // len(piece)):
            file.write(packer.compress(piece))
        file.write(packer.flush())


def test_a_gzip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb(tmp_path / files.SOURCE, 512 * 2**20)
    child = in_a_child(tmp_path)
    assert child.report is not None
    assert child.report["file_error"]["kind"] == "too_large"
    assert "200 times" in child.report["file_error"]["message"]
    assert child.peak_mb < 120


def test_a_file_may_not_unpack_to_more_than_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED_BYTES", 100_000)
    error = report(tmp_path, gzip.compress(b"".join(GOOD.replace(b'"a"', b'"%d"' % n) for n in range(9000))))[
        "file_error"
    ]
    assert error["kind"] == "too_large"


MANY = [GOOD * 4_000, b"question\n" + b"a\n" * 4_000, b"[" + b'{"a":1},' * 4_000 + b'{"a":1}]']


@pytest.mark.parametrize("content", MANY, ids=["lines", "a table", "a list"])
def test_a_file_of_many_more_rows_than_bytes_is_given_up(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unpacking, "SPARSE_FROM", 1_000)
    error = report(tmp_path, gzip.compress(content))["file_error"]
    assert error["kind"] == "too_large"
    assert "nearly all rows are empty or the same" in error["message"]
    assert report(tmp_path, content)["file_error"] is None


def test_the_bytes_of_a_problem_are_those_of_the_unpacked_file(tmp_path: Path) -> None:
    told = report(tmp_path, gzip.compress(GOOD * 3 + b"oh\n"))
    assert [p["byte"] for p in told["problems"] if p["kind"] == "malformed_json"] == [3 * len(GOOD)]
    assert (4, "malformed_json") in found(told)
