"""Writes and reads canonical rows: one Parquet file per version, byte-identical for identical rows."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from workers.contract.run.dataset import chat_in, schema_metadata

SCHEMA = pa.schema(
    [
        ("row_id", pa.int64()),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("answer", pa.string()),
        ("test_cases", pa.list_(pa.string())),
        ("metadata", pa.string()),
        ("split", pa.string()),
    ]
)
"""The columns of workers.contract.run.dataset. A plain text prompt is stored as one user message."""
GROUP_ROWS = 10_000
GROUP_BYTES = 16 * 2**20
"""Bytes of text per row group, so that any row group fits into memory."""


class RowWriter:
    """Writes `path` under a temporary name until `close`; `discard` leaves nothing. A context manager: discards unless
    closed.

    Row ids must ascend, because readers find rows by position.
    """

    def __init__(self, path: Path, *, chat: bool) -> None:
        self._path, self._draft = path, path.with_name(path.name + ".part")
        self._file = HashedFile(self._draft.open("wb"))
        self._schema = SCHEMA.with_metadata(schema_metadata(chat=chat))
        self._parquet = pq.ParquetWriter(
            self._file, self._schema, compression="zstd", use_dictionary=["split"], write_page_index=False
        )
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._bytes = 0
        self._last = -1
        self._open = True
        self._encode = msgspec.json.Encoder(order="sorted").encode
        self.rows = 0

    @property
    def names(self) -> list[str]:
        """The columns of a row."""
        return list(self._columns)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row from mapping.canonical, with its "split". Raises ValueError for a row_id out of order."""
        if row["row_id"] <= self._last:
            raise ValueError(f"row {row['row_id']} comes after row {self._last}")
        self._last = row["row_id"]
        metadata = self._encode(row["metadata"]).decode()
        for name, column in self._columns.items():
            column.append(metadata if name == "metadata" else row[name])
        self.rows += 1
        self._bytes += len(metadata) + len(row["answer"] or "") + sum(map(len, row["test_cases"]))
        self._bytes += sum(len(message["content"]) for message in row["prompt"])
        if len(self._columns["row_id"]) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def close(self) -> str:
        """Put the file in place, flushed to disk; return its sha256."""
        self._write_group()
        self._parquet.close()
        self._open = False
        self._file.settle()
        self._draft.replace(self._path)
        return self._file.sha256.hexdigest()

    def discard(self) -> None:
        self._open = False
        with suppress(OSError, pa.ArrowException):  # closing ends the file, which is discarded
            self._parquet.close()
        self._parquet.is_open = False  # otherwise it retries when garbage-collected
        self._file.close()
        self._draft.unlink(missing_ok=True)

    def __enter__(self) -> RowWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._open:
            self.discard()

    def _write_group(self) -> None:
        if not self._columns["row_id"]:
            return
        self._parquet.write_table(pa.Table.from_pydict(self._columns, schema=self._schema), row_group_size=GROUP_ROWS)
        self._columns = {name: [] for name in SCHEMA.names}
        self._bytes = 0


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """All rows with their metadata as objects, one row group in memory at a time."""
    file = pq.ParquetFile(path)
    for group in range(file.num_row_groups):
        for row in file.read_row_group(group).to_pylist():
            yield {**row, "metadata": msgspec.json.decode(row["metadata"])}


def is_chat(path: Path) -> bool:
    """True if the prompts use a chat template. Raises ValueError for a file that is not canonical."""
    return chat_of(pq.read_schema(path))


def chat_of(schema: pa.Schema) -> bool:
    return chat_in(schema.metadata)


class HashedFile:
    """A file that is written sequentially, with its hash."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._at = 0
        self.sha256 = hashlib.sha256()

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        self.sha256.update(view)
        self._file.write(view)
        self._at += len(view)
        return len(view)

    def tell(self) -> int:
        return self._at

    def flush(self) -> None:
        self._file.flush()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def settle(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()

    def close(self) -> None:
        self._file.close()
