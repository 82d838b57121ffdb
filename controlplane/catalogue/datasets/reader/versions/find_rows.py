"""The verbs `find`, which reads filtered pages or single rows of a ready version, and `export`, which writes a file.

Unfiltered pages are read with the module `shown` instead.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from controlplane.catalogue.datasets.reader import files
from controlplane.catalogue.datasets.reader.excerpts import cut, short
from controlplane.catalogue.datasets.reader.parsing.formats import JSONL
from controlplane.catalogue.datasets.reader.versions.filtering import RowFilter, matching
from workers.contract.run.dataset import chat_in

PAGE_ROWS = 50
MAX_SEARCH_S = 5.0
"""Time after which a search for rare matches ends: a page is then incomplete, and a row's neighbors are unknown."""
MAX_FULL_CHARACTERS = 200_000
"""Length to which strings are cut in a row that is shown in full."""


def find(folder: Path, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Find rows by one of four requests: {"row_id": n, "filter"} -> {"row": the row in full, or None, "before" and
    "after": the ids of its neighbors among the rows that pass the filter; None at either end, and both None if the
    search takes too long}. {"filter", "after": position, "limit"} -> {"rows": [short rows with their "position"],
    "next": where the next page begins, or None at the end}. {"filter", "count": true} -> {"count": n}. {"exact":
    row_ids, "bytes": most} -> {"rows": [unmodified rows], "chat": whether prompts are messages, "left_out": number of
    rows that didn't fit}.

    Raises FilterError if the filter is invalid, or if it is only possible when deriving a version.
    """
    rows = open_rows(folder)
    if "exact" in arguments:
        return _exact(rows, [int(row_id) for row_id in arguments["exact"]], int(arguments["bytes"]))
    if "row_id" in arguments:
        row_id = int(arguments["row_id"])
        before, after = _neighbors(rows, row_id, RowFilter.from_dict(arguments.get("filter") or {}))
        row = next(_by_number(rows, (row_id,)), None)
        return {"row": cut(row, MAX_FULL_CHARACTERS), "before": before, "after": after}
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    if arguments.get("count"):
        return {"count": sum(len(matching(batch, row_filter)) for _, batch in batches(rows))}
    return _page(rows, row_filter, int(arguments.get("after", 0)), int(arguments.get("limit", PAGE_ROWS)))


def export(folder: Path, arguments: Mapping[str, Any], out: BinaryIO) -> None:
    """Write the rows of {"format": "jsonl" or "parquet", "filter": optional} to `out`, which may be a pipe.

    JSON Lines have the columns of canonical.SCHEMA, with the metadata as an object. Raises FilterError, before anything
    is written, if the filter is invalid.
    """
    row_filter = RowFilter.from_dict(arguments.get("filter") or {})
    rows = open_rows(folder)
    filtered_batches = (batch.take(indexes) for _, batch in batches(rows) if (indexes := matching(batch, row_filter)))
    if arguments["format"] == JSONL:
        for batch in filtered_batches:
            for row in batch.to_pylist():
                metadata = msgspec.Raw(row["metadata"].encode())
                out.write(msgspec.json.encode({**row, "metadata": metadata}) + b"\n")
    else:
        with pq.ParquetWriter(out, rows.schema_arrow, compression="zstd") as writer:
            for batch in filtered_batches:
                writer.write_batch(batch)
    out.flush()


def row_of(batch: pa.RecordBatch, index: int) -> dict[str, Any]:
    """Return one row, with its metadata as an object."""
    row: dict[str, Any] = batch.slice(index, 1).to_pylist()[0]
    return {**row, "metadata": msgspec.json.decode(row["metadata"])}


def batches(rows: pq.ParquetFile, start: int = 0) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield (position of the first row, batch) for the rows from the position `start` on."""
    group_start = 0
    for group in range(rows.num_row_groups):
        count = rows.metadata.row_group(group).num_rows
        if group_start + count > start:
            position = group_start
            for batch in rows.iter_batches(row_groups=[group], batch_size=10_000):
                skip = min(max(0, start - position), batch.num_rows)
                if skip < batch.num_rows:
                    yield position + skip, batch.slice(skip)
                position += batch.num_rows
        group_start += count


def open_rows(folder: Path) -> pq.ParquetFile:
    return pq.ParquetFile(folder / files.ROWS)


def _page(rows: pq.ParquetFile, row_filter: RowFilter, first_position: int, limit: int) -> dict[str, Any]:
    page_rows: list[dict[str, Any]] = []
    deadline = time.monotonic() + MAX_SEARCH_S
    for start, batch in batches(rows, first_position):
        for position, index in ((start + index, index) for index in matching(batch, row_filter)):
            if len(page_rows) == limit:
                return {"rows": page_rows, "next": position}
            page_rows.append({"position": position, **short(row_of(batch, index))})
        end = start + batch.num_rows
        if time.monotonic() > deadline and end < rows.metadata.num_rows:
            return {"rows": page_rows, "next": end}
    return {"rows": page_rows, "next": None}


def _neighbors(rows: pq.ParquetFile, row_id: int, row_filter: RowFilter) -> tuple[int | None, int | None]:
    """Return the previous and the next matching id; ids ascend in the file."""
    before: int | None = None
    deadline = time.monotonic() + MAX_SEARCH_S
    for batch in rows.iter_batches(batch_size=10_000, columns=None if row_filter else ["row_id"]):
        ids = batch.column("row_id").to_pylist()
        for passing_id in (ids[index] for index in matching(batch, row_filter)) if row_filter else ids:
            if passing_id > row_id:
                return before, passing_id
            if passing_id < row_id:
                before = passing_id
        if time.monotonic() > deadline:
            return None, None
    return before, None


def _exact(rows: pq.ParquetFile, row_ids: Sequence[int], limit: int) -> dict[str, Any]:
    exact_rows, size, left_out = [], 0, 0
    for row in _by_number(rows, tuple(row_ids)):
        size += len(msgspec.json.encode(row))
        if size > limit:
            left_out += 1
        else:
            exact_rows.append(row)
    return {"rows": exact_rows, "chat": chat_in(rows.schema_arrow.metadata), "left_out": left_out}


def _by_number(rows: pq.ParquetFile, row_ids: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the existing rows with these ids, in file order; row groups without any of them are not read."""
    row_filter = RowFilter(row_ids=row_ids)
    for group in range(rows.num_row_groups):
        statistics = rows.metadata.row_group(group).column(0).statistics
        if (
            statistics is not None
            and statistics.has_min_max
            and not any(statistics.min <= row_id <= statistics.max for row_id in row_ids)
        ):
            continue
        for batch in rows.iter_batches(row_groups=[group], batch_size=10_000):
            for index in matching(batch, row_filter):
                yield row_of(batch, index)
