"""The verb `export`: writes all or filtered rows of a ready version as JSON Lines or Parquet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from controlplane.catalogue.datasets.reader.versions.find_rows import batches

JSONL, PARQUET = "jsonl", "parquet"


def export(folder: Path, arguments: Mapping[str, Any], out: BinaryIO) -> int:
    """{"format": "jsonl" or "parquet", "filter": optional} -> the rows, written to `out`, which may be a pipe. Return
    their number.

    JSON Lines have the columns of canonical.SCHEMA, with the metadata as an object. Raises FilterError before anything
    is written.
    """
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    rows = pq.ParquetFile(folder / files.ROWS)
    target = _JsonLines(out) if arguments["format"] == JSONL else _ParquetTable(out, rows.schema_arrow)
    count = 0
    for _, batch in batches(rows):
        places = matching(batch, row_filter)
        if places:
            target.write(batch if len(places) == batch.num_rows else batch.take(places))
        count += len(places)
    target.close()
    return count


class _JsonLines:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._out.write(self._encode({**row, "metadata": msgspec.Raw(row["metadata"].encode())}) + b"\n")

    def close(self) -> None:
        self._out.flush()


class _ParquetTable:
    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        self._out = out
        self._writer = pq.ParquetWriter(out, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._out.flush()
