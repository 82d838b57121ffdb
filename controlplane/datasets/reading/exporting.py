"""Rows of a ready version to take away: JSON Lines or Parquet, all of them or those that a filter means."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from controlplane.datasets.reading import files
from controlplane.datasets.reading.filtering import Filter, matching
from controlplane.datasets.reading.looking import batches

if TYPE_CHECKING:
    import pyarrow as pa

JSONL, PARQUET = "jsonl", "parquet"


def export(folder: Path, arguments: Mapping[str, Any], out: BinaryIO) -> int:
    """{"format": "jsonl" or "parquet", "filter": optional} -> the rows into `out`, which may be a pipe; how many.

    JSON Lines have the columns of canonical.SCHEMA, with the metadata as an object. Raises FilterError before anything
    is written.
    """
    import pyarrow.parquet as pq

    wanted = Filter.from_dict(arguments.get("filter") or {})
    rows = pq.ParquetFile(folder / files.ROWS)
    target = _Lines(out) if arguments["format"] == JSONL else _Table(out, rows.schema_arrow)
    count = 0
    for _, batch in batches(rows):
        places = matching(batch, wanted)
        if places:
            target.write(batch if len(places) == batch.num_rows else batch.take(places))
        count += len(places)
    target.close()
    return count


class _Lines:
    def __init__(self, out: BinaryIO) -> None:
        self._out = out
        self._encode = msgspec.json.Encoder().encode

    def write(self, batch: pa.RecordBatch) -> None:
        for row in batch.to_pylist():
            self._out.write(self._encode({**row, "metadata": msgspec.Raw(row["metadata"].encode())}) + b"\n")

    def close(self) -> None:
        self._out.flush()


class _Table:
    def __init__(self, out: BinaryIO, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._out = out
        self._writer = pq.ParquetWriter(out, schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        self._writer.close()
        self._out.flush()
