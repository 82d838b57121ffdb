"""The verb `export`: writes all or filtered rows of a ready version as JSON Lines or Parquet."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader.parsing.formats import JSONL
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from controlplane.catalogue.datasets.reader.versions.find_rows import batches, open_rows


def export(folder: Path, arguments: Mapping[str, Any], out: BinaryIO) -> None:
    """Write the rows of {"format": "jsonl" or "parquet", "filter": optional} to `out`, which may be a pipe.

    JSON Lines have the columns of canonical.SCHEMA, with the metadata as an object. Raises FilterError before anything
    is written.
    """
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    rows = open_rows(folder)
    chosen = (batch.take(indexes) for _, batch in batches(rows) if (indexes := matching(batch, row_filter)))
    if arguments["format"] == JSONL:
        for batch in chosen:
            for row in batch.to_pylist():
                metadata = msgspec.Raw(row["metadata"].encode())
                out.write(msgspec.json.encode({**row, "metadata": metadata}) + b"\n")
    else:
        with pq.ParquetWriter(out, rows.schema_arrow, compression="zstd") as writer:
            for batch in chosen:
                writer.write_batch(batch)
    out.flush()
