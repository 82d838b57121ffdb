"""Writing of canonical rows to one Parquet file per version, which is byte-identical for identical rows."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader.files import Closing, DraftFile, sha256_of
from workers.contract.run.dataset import schema_metadata

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
"""Columns that workers.contract.run.dataset describes. A plain text prompt is stored as one user message."""
GROUP_ROWS = 10_000
GROUP_BYTES = 16 * 2**20
"""Bytes of text per row group, so that any row group fits into memory."""


class RowWriter(Closing):
    """Writer of canonical rows to `path`, which exists only after `finish`.

    Row ids must ascend, because readers rely on that to find rows.
    """

    def __init__(self, path: Path, *, chat: bool) -> None:
        self._path, self._draft = path, DraftFile(path)
        self._schema = SCHEMA.with_metadata(schema_metadata(chat=chat))
        self._parquet = pq.ParquetWriter(
            self._draft.file, self._schema, compression="zstd", use_dictionary=["split"], write_page_index=False
        )
        self._columns: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        self._bytes = 0
        self._last_id = -1
        self._encode = msgspec.json.Encoder(order="sorted").encode

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row from mapping.canonical, with its "split". Raises ValueError for a row id out of order."""
        if row["row_id"] <= self._last_id:
            raise ValueError(f"row {row['row_id']} comes after row {self._last_id}")
        self._last_id = row["row_id"]
        metadata = self._encode(row["metadata"]).decode()
        for name, column in self._columns.items():
            column.append(metadata if name == "metadata" else row[name])
        self._bytes += len(metadata) + len(row["answer"] or "") + sum(map(len, row["test_cases"]))
        self._bytes += sum(len(message["content"]) for message in row["prompt"])
        if len(self._columns["row_id"]) >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._write_group()

    def finish(self) -> str:
        """Sync the file to disk, put it in place, and return its SHA-256."""
        self._write_group()
        self._parquet.close()
        self._draft.finish()
        return sha256_of(self._path)

    def close(self) -> None:
        with suppress(OSError, pa.ArrowException):  # an unfinished file is discarded anyway
            self._parquet.close()
        self._parquet.is_open = False  # otherwise it retries when garbage-collected
        self._draft.close()

    def _write_group(self) -> None:
        if not self._columns["row_id"]:
            return
        self._parquet.write_table(pa.Table.from_pydict(self._columns, schema=self._schema), row_group_size=GROUP_ROWS)
        self._columns = {name: [] for name in SCHEMA.names}
        self._bytes = 0
